#include "millrace/kernel/graph_rights.h"

#include <gtest/gtest.h>

#include "millrace/graph/op_def.h"
#include "millrace/kernel/kernel.h"

namespace millrace {
namespace {

TEST(GraphRights, AreWordsAndBits) {
  EXPECT_EQ(GraphRights::parse("all").value(), GraphRights());
  EXPECT_EQ(GraphRights::parse("none").value(), GraphRights::none());
  const GraphRights some = GraphRights::parse("state,files").value();
  EXPECT_TRUE(some.files && some.state && !some.py_func && !some.libraries);
  EXPECT_EQ(some.to_string(), "files,state");
  EXPECT_EQ(GraphRights().to_string(), "all");
  EXPECT_EQ(GraphRights::none().to_string(), "none");
  for (const char* words : {"file", "files,", "files, state", "all,files", "FILES"}) {
    const Result<GraphRights> rights = GraphRights::parse(words);
    // A comma at the end is followed by nothing.
    EXPECT_EQ(rights.ok(), std::string_view(words) == "files,") << words;
  }
  for (uint32_t bits = 0; bits < 16; ++bits) {
    EXPECT_EQ(GraphRights::from_refused_bits(bits).refused_bits(), bits);
  }
  EXPECT_EQ(GraphRights::from_refused_bits(~uint32_t{0}), GraphRights::none());
  EXPECT_EQ((some & GraphRights::parse("files,py_func").value()).to_string(), "files");
}

TEST(GraphRights, NodesAreCheckedByMarksAndNames) {
  mark_reach({"TestReads"}, Reach::kFiles);
  mark_reach({"TestReadsSometimes"}, Reach::kFiles,
             [](const AttrMap& attrs) { return read_attr<bool>(attrs, "reads").value(); });
  EXPECT_TRUE(reaches("TestReads", Reach::kFiles));
  EXPECT_FALSE(reaches("TestReads", Reach::kState));
  const auto check = [](const char* name, AttrMap attrs, const GraphRights& rights) {
    OpDef op;
    op.name = name;
    KernelNode node;
    node.op = &op;
    node.attrs = std::move(attrs);
    return check_rights(node, rights).code();
  };
  const GraphRights no_files = {.files = false};
  EXPECT_EQ(check("TestReads", {}, no_files), Code::kPermissionDenied);
  EXPECT_EQ(check("TestReads", {}, GraphRights()), Code::kOk);
  EXPECT_EQ(check("TestReads", {}, {.state = false}), Code::kOk);
  EXPECT_EQ(check("TestReadsSometimes", {{"reads", true}}, no_files), Code::kPermissionDenied);
  EXPECT_EQ(check("TestReadsSometimes", {{"reads", false}}, no_files), Code::kOk);
  const AttrMap shared = {{"shared_name", std::string("q")}};
  EXPECT_EQ(check("TestKeeps", shared, {.state = false}), Code::kPermissionDenied);
  EXPECT_EQ(check("TestKeeps", shared, no_files), Code::kOk);
  EXPECT_EQ(check("TestKeeps", {{"shared_name", std::string()}}, {.state = false}), Code::kOk);
}

}  // namespace
}  // namespace millrace
