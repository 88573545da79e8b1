#include "millrace/graph/gradient.h"

#include "millrace/kernel/eager_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/ops/state/state_testing.h"

// Gradient rules, run by a builder that computes every op at once.

namespace millrace {
namespace {

class VariableGradients : public StateTest {
 protected:
  static void SetUpTestSuite() {
    StateTest::SetUpTestSuite();
    register_for_tests({register_array_ops, register_math_ops, register_reduce_ops});
  }
};

TEST_F(VariableGradients, ReadPassesItToTheHandle) {
  EagerBuilder builder(env_);
  const Expr resource = builder.constant(variable("v", Tensor::scalar(1.0f)));
  const Expr value = builder.constant(Tensor::scalar(1.0f));
  const Expr gradient = builder.constant(Tensor::scalar(3.0f));
  const AttrMap attrs = {{"dtype", DType::kFloat}};
  GradientContext context(builder, {resource}, {value}, {gradient}, attrs, {DType::kResource});
  ASSERT_TRUE(OpRegistry::global().find("ReadVariableOp")->gradient(context).ok());
  EXPECT_EQ(context.input_gradients()[0].values.id(), gradient.id());
  EXPECT_FALSE(context.input_gradients()[0].indices.valid());
}

TEST_F(VariableGradients, GatherGivesTheRowsItTook) {
  const Tensor v = variable("v", Tensor::zeros(DType::kFloat, {5, 2}).value());
  const Tensor dy = Tensor::of<float>({1, 3, 2}, {1, 2, 3, 4, 5, 6});
  const Tensor rows = Tensor::of<int64_t>({1, 3}, {4, 0, 4});
  EagerBuilder builder(env_);
  const AttrMap attrs = {{"dtype", DType::kFloat}, {"batch_dims", 0}};
  GradientContext context(builder, {builder.constant(v), builder.constant(rows)},
                          {builder.constant(dy)}, {builder.constant(dy)}, attrs,
                          {DType::kResource, DType::kInt64});
  ASSERT_TRUE(OpRegistry::global().find("ResourceGather")->gradient(context).ok());
  ASSERT_TRUE(builder.status().ok());
  const Gradient& g = context.input_gradients()[0];
  expect_equal(builder.tensor(g.values), Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6}));
  expect_equal(builder.tensor(g.indices), Tensor::vector<int64_t>({4, 0, 4}));
  expect_equal(builder.tensor(g.dense_shape), Tensor::vector<int32_t>({5, 2}));
  EXPECT_FALSE(context.input_gradients()[1].values.valid());
}

TEST_F(VariableGradients, GatherInBatchesAddsTheRowsOfEach) {
  struct Case {
    Tensor variable, indices, dy, expected;
  };
  const Case cases[] = {
      {Tensor::zeros(DType::kFloat, {2, 3, 2}).value(), Tensor::of<int32_t>({2, 2}, {2, 2, 0, 1}),
       Tensor::of<float>({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}),
       Tensor::of<float>({2, 3, 2}, {0, 0, 0, 0, 4, 6, 5, 6, 7, 8, 0, 0})},
      // One index for each row of the batch; no dimensions after it.
      {Tensor::zeros(DType::kFloat, {2, 3}).value(), Tensor::of<int32_t>({2}, {1, 0}),
       Tensor::of<float>({2}, {1, 2}), Tensor::of<float>({2, 3}, {0, 1, 0, 2, 0, 0})},
      {Tensor::zeros(DType::kFloat, {0, 3}).value(), Tensor::of<int32_t>({0, 4}, {}),
       Tensor::of<float>({0, 4}, {}), Tensor::of<float>({0, 3}, {})},
  };
  int number = 0;
  for (const Case& c : cases) {
    SCOPED_TRACE(number);
    const Tensor v = variable(str_cat("v", number++), c.variable);
    EagerBuilder builder(env_);
    const AttrMap attrs = {{"dtype", DType::kFloat}, {"batch_dims", 1}};
    GradientContext context(builder, {builder.constant(v), builder.constant(c.indices)},
                            {builder.constant(c.dy)}, {builder.constant(c.dy)}, attrs,
                            {DType::kResource, DType::kInt32});
    ASSERT_TRUE(OpRegistry::global().find("ResourceGather")->gradient(context).ok());
    ASSERT_TRUE(builder.status().ok()) << builder.status().to_string();
    expect_equal(builder.tensor(context.input_gradients()[0].values), c.expected);
  }
}

}  // namespace
}  // namespace millrace
