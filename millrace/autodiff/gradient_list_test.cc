// Every op of the registry has a gradient rule, or a reason to have none.

#include <gtest/gtest.h>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_registry.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

TEST(GradientList, EveryOpHasAGradientOrAReason) {
  ASSERT_TRUE(register_ops().ok());
  for (const OpDef* op : OpRegistry::global().list()) {
    if (op->gradient == nullptr) {
      EXPECT_NE(why_no_gradient(*op), "")
          << op->name << " has neither a gradient nor a reason to have none: give its definition"
          << " .gradient, or .no_gradient with the reason";
    } else {
      EXPECT_FALSE(op->traits.cannot_differentiate) << op->name;
      EXPECT_EQ(op->no_gradient, "") << op->name << " has a gradient";
    }
  }
}

TEST(GradientList, ReasonsComeFromTheDefinitionOrItsTypes) {
  ASSERT_TRUE(register_ops().ok());
  const auto why = [](const char* name) {
    return why_no_gradient(*OpRegistry::global().lookup(name).value());
  };
  EXPECT_EQ(why("Bincount"), "counts elements");
  EXPECT_EQ(why("RandomUniform"), "draw random numbers");
  EXPECT_EQ(why("Equal"), "the results are no real or complex numbers");

  OpDef op = {.name = "New", .inputs = {{.name = "x", .dtype = DType::kFloat}}};
  op.outputs = {{.name = "y", .dtype = DType::kFloat}};
  EXPECT_EQ(why_no_gradient(op), "");
  op.outputs[0].dtype = DType::kInt32;
  EXPECT_EQ(why_no_gradient(op), "the results are no real or complex numbers");
}

}  // namespace
}  // namespace millrace
