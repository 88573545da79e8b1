#include "millrace/graph/shape_context.h"

#include <gtest/gtest.h>

#include "millrace/graph/op_def.h"
#include "millrace/graph/sample_ops_testing.h"
#include "millrace/graph/shape_testing.h"

namespace millrace {
namespace {

class ShapeTest : public testing::Test {
 protected:
  ShapeTest() { register_sample_ops(registry_); }

  // The shapes, or the error's message.
  std::string shapes(const char* op, const char* inputs, const TestConstants& constants = {}) {
    Result<std::string> text = infer_shapes(registry_, op, {}, inputs, constants);
    return text.ok() ? *text : std::string(text.status().message());
  }

  OpRegistry registry_;
};

TEST_F(ShapeTest, Broadcast) {
  EXPECT_EQ(shapes("Add", "[1,?];[2]"), "[1,2]");
  EXPECT_EQ(shapes("Add", "[?,3];[1,1]"), "[?,3]");
  EXPECT_EQ(shapes("Add", "[?];[?]"), "[?]");
  EXPECT_EQ(shapes("Add", "[?];[0]"), "[0]");
  EXPECT_EQ(shapes("Add", "[];[4,1]"), "[4,1]");
  EXPECT_EQ(shapes("Add", "?;[4]"), "?");
  EXPECT_EQ(shapes("Add", "[2,3];[2,4]"),
            "Dimensions must be equal, but are 3 and 4: incompatible shapes [2,3] and [2,4] cannot "
            "be broadcast together");
}

TEST_F(ShapeTest, RulesSayWhatCame) {
  EXPECT_EQ(shapes("MatMul", "[32,784];[512,10]"), "inner dimensions differ: [32,784] x [512,10]");
  EXPECT_EQ(shapes("MatMul", "[32,?];?"), "[32,?]");
  EXPECT_EQ(shapes("MatMul", "[32];[32,1]"),
            "Shape must be rank 2 but is rank 1: input 0 has shape [32]");
}

TEST_F(ShapeTest, ValuesBecomeShapes) {
  EXPECT_EQ(shapes("Reshape", "?;=[2,?,-1]"), "[2,?,?]");
  EXPECT_EQ(shapes("Reshape", "?;[3]"), "[?,?,?]");
  EXPECT_EQ(shapes("Reshape", "?;?"), "?");
  EXPECT_EQ(shapes("Reshape", "?;[1]", {{1, Tensor::vector<int64_t>({2, 3})}}), "[2,3]");
  EXPECT_NE(shapes("Reshape", "?;=[-2]"), "[-2]");
  EXPECT_NE(shapes("Reshape", "?;[2,2]").find("must be a vector"), std::string::npos);
  EXPECT_NE(shapes("Reshape", "?;[1000000000000]").find("dimensions"), std::string::npos);
}

TEST_F(ShapeTest, ValueRulesRunAfterShapeRules) {
  EXPECT_EQ(*infer_values(registry_, "Shape", {}, "[2,?]"), "[2,?]");
  EXPECT_EQ(*infer_values(registry_, "Shape", {}, "?"), "?");
  EXPECT_EQ(*infer_values(registry_, "Pack", {{"T", DType::kInt32}}, "=3;=?;[]"), "[3,?,?]");
  EXPECT_EQ(*infer_values(registry_, "Add", {}, "=3;=4"), "?");
}

TEST_F(ShapeTest, OneShapeForAll) {
  OpDef op;
  op.shape = shape_rules::merged;
  AttrMap attrs;
  TensorFacts a, b;
  a.shape = PartialShape{2, -1};
  b.shape = PartialShape{-1, 3};
  ShapeContext good(op, attrs, {&a, &b}, {}, {DType::kFloat, DType::kFloat});
  EXPECT_EQ((*infer(good))[1].shape, (PartialShape{2, 3}));
  b.shape = PartialShape{3, 3};
  ShapeContext bad(op, attrs, {&a, &b}, {}, {DType::kFloat});
  EXPECT_EQ(infer(bad).status().code(), Code::kInvalidArgument);
}

TEST_F(ShapeTest, ConstantKnowsItsValue) {
  const OpDef& op = *registry_.find("Const");
  const AttrMap attrs = {{"value", Tensor::vector<int32_t>({4, 5})}, {"dtype", DType::kInt32}};
  ShapeContext context(op, attrs, {}, {}, {DType::kInt32});
  const std::vector<TensorFacts> facts = infer(context).value();
  EXPECT_EQ(facts[0].shape, PartialShape{2});
  EXPECT_EQ(facts[0].value->elements[1], 5);
  EXPECT_EQ(facts[0].constant, &attrs.find("value")->get<TensorAttr>()->tensor);

  ShapeContext other_type(op, attrs, {}, {}, {DType::kFloat});
  EXPECT_EQ(infer(other_type).status().code(), Code::kInvalidArgument);
}

TEST_F(ShapeTest, LargeAndFloatConstantsHaveNoSmallValue) {
  const OpDef& op = *registry_.find("Const");
  const Tensor large = Tensor::zeros(DType::kInt32, Shape{kMaxValueElements + 1}).value();
  for (const Tensor& value : {large, Tensor::scalar(1.5f)}) {
    const AttrMap attrs = {{"value", value}};
    ShapeContext context(op, attrs, {}, {}, {value.dtype()});
    const std::vector<TensorFacts> facts = infer(context).value();
    EXPECT_FALSE(facts[0].value.has_value());
    EXPECT_NE(facts[0].constant, nullptr);
  }
}

}  // namespace
}  // namespace millrace
