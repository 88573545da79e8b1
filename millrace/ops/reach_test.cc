// Ops that touch files say so where they are registered (kernel/graph_rights.h); the sources of
// others open none, which python/tests/test_file_ops.py looks after.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "millrace/graph/op_registry.h"
#include "millrace/kernel/graph_rights.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

// Ops with a name of a file among their arguments that open none.
const std::set<std::string> kNamesOnly = {
    // A cache is in memory where the name is empty; the device's FileAccess guards the others.
    "CacheDataset", "CacheDatasetV2",
    // They make names, or hand them on.
    "ShardedFilename", "ShardedFilespec", "TensorSliceDataset"};

bool names_a_file(std::string_view name) {
  for (const char* word : {"file", "path", "prefix", "director"}) {
    if (name.find(word) != std::string_view::npos) return true;
  }
  return false;
}

TEST(Reach, OpsWithNamesOfFilesAreMarked) {
  ASSERT_TRUE(register_ops().ok());
  std::set<std::string> unused = kNamesOnly;
  int marked = 0;
  for (const OpDef* op : OpRegistry::global().list()) {
    const auto named = [](const auto& arg) { return names_a_file(arg.name); };
    const bool expected = std::any_of(op->inputs.begin(), op->inputs.end(), named) ||
                          std::any_of(op->attrs.begin(), op->attrs.end(), named);
    marked += reaches(op->name, Reach::kFiles) ? 1 : 0;
    unused.erase(op->name);
    if (!expected || kNamesOnly.contains(op->name)) continue;
    EXPECT_TRUE(reaches(op->name, Reach::kFiles))
        << op->name << " takes the name of a file: mark_reach() it";
  }
  EXPECT_GT(marked, 20);
  EXPECT_TRUE(unused.empty()) << *unused.begin() << " is no op";
}

// Folding would read a file in the process of the master, and once.
TEST(Reach, WhatReachesFilesIsNeverFolded) {
  ASSERT_TRUE(register_ops().ok());
  for (const OpDef* op : OpRegistry::global().list()) {
    if (!reaches(op->name, Reach::kFiles) && !reaches(op->name, Reach::kPyFunc)) continue;
    EXPECT_TRUE(op->traits.stateful || op->traits.blocks) << op->name;
  }
}

}  // namespace
}  // namespace millrace
