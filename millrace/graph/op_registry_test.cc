#include "millrace/graph/op_registry.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

OpDef named(std::string name) {
  OpDef op;
  op.name = std::move(name);
  return op;
}

TEST(OpRegistryTest, FindsWhatWasAddedAlsoAfterGrowth) {
  OpRegistry registry;
  ASSERT_TRUE(registry.add(named("First")).ok());
  const OpDef* first = registry.find("First");
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(registry.add(named(str_cat("Op", i))).ok());
  EXPECT_EQ(registry.find("First"), first);
  for (int i = 0; i < 2000; ++i) ASSERT_NE(registry.find(str_cat("Op", i)), nullptr);
  EXPECT_EQ(registry.find("Op2000"), nullptr);
  EXPECT_EQ(registry.add(named("Op7")).code(), Code::kAlreadyExists);
  const auto all = registry.list();
  ASSERT_EQ(all.size(), 2001u);
  EXPECT_EQ(all[0]->name, "First");
}

TEST(OpRegistryTest, SuggestsNearNames) {
  OpRegistry registry;
  for (const char* name : {"MatMul", "BatchMatMul", "Mul"}) {
    ASSERT_TRUE(registry.add(named(name)).ok());
  }
  const Status status = registry.lookup("Matmull").status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_EQ(status.message(), "Op type not registered 'Matmull'; near names: 'MatMul'");
  EXPECT_EQ(registry.lookup("Zzzzzzzzz").status().message(), "Op type not registered 'Zzzzzzzzz'");
  EXPECT_LT(registry.lookup(std::string(1 << 20, 'a')).status().message().size(), 200u);
}

}  // namespace
}  // namespace millrace
