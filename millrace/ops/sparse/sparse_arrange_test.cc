#include <gtest/gtest.h>

#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_sparse_ops});

Tensor longs(std::initializer_list<int64_t> values) { return Tensor::vector<int64_t>(values); }
Tensor floats(std::initializer_list<float> values) { return Tensor::vector<float>(values); }
Tensor pairs(std::initializer_list<int64_t> values) {
  return Tensor::of<int64_t>({static_cast<int64_t>(values.size()) / 2, 2}, values);
}
void expect_invalid(const Status& status, std::string_view part) {
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
  EXPECT_NE(status.message().find(part), std::string_view::npos) << status.to_string();
}
Result<std::string> shapes(std::string_view op, std::string_view inputs, AttrMap attrs = {}) {
  return infer_shapes(OpRegistry::global(), op, std::move(attrs), inputs);
}

TEST(SparseReorder, SortsAndKeepsTheOrderOfEquals) {
  const std::vector<Tensor> out = OpTester("SparseReorder")
                                      .input(pairs({1, 0, 0, 1, 1, 0, 0, 0}))
                                      .input(floats({1, 2, 3, 4}))
                                      .input(longs({2, 2}))
                                      .run()
                                      .value();
  expect_tensor_equal(out[0], pairs({0, 0, 0, 1, 1, 0, 1, 0}));
  expect_tensor_equal(out[1], floats({4, 2, 1, 3}));
  expect_invalid(OpTester("SparseReorder")
                     .input(pairs({1, 0}))
                     .input(floats({1, 2}))
                     .input(longs({2, 2}))
                     .run()
                     .status(),
                 "input_indices.shape[0] should equal input_values.shape[0]");
}

TEST(SparseReshape, FindsTheMissingSize) {
  const auto reshape = [](std::initializer_list<int64_t> shape) {
    return OpTester("SparseReshape")
        .input(pairs({0, 1, 4, 5}))
        .input(longs({5, 6}))
        .input(longs(shape))
        .run();
  };
  const std::vector<Tensor> out = reshape({3, -1}).value();
  expect_tensor_equal(out[0], pairs({0, 1, 2, 9}));
  expect_tensor_equal(out[1], longs({3, 10}));
  expect_invalid(reshape({4, 7}).status(), "a tensor with 30 dense values");
  expect_invalid(reshape({4, -1}).status(), "requested shape requires a multiple of 4");
  expect_invalid(reshape({-1, -1}).status(), "only one output shape size may be -1");
  expect_invalid(reshape({0, -1}).status(), "cannot infer the missing");
  expect_invalid(reshape({-2, 15}).status(), "non-negative");
  expect_invalid(reshape({int64_t{1} << 40, int64_t{1} << 40}).status(), "");
  EXPECT_EQ(*shapes("SparseReshape", "[5,2];[2];[3]"), "[5,3];[3]");
  EXPECT_EQ(*shapes("SparseReshape", "?;?;?"), "[?,?];[?]");
}

TEST(SparseConcat, PutsOneAfterTheOther) {
  const auto concat = [](int64_t axis, Tensor second_shape) {
    return OpTester("SparseConcat")
        .attr("concat_dim", axis)
        .input_list({pairs({0, 0, 1, 1}), pairs({0, 1})})
        .input_list({floats({1, 2}), floats({3})})
        .input_list({longs({2, 2}), std::move(second_shape)})
        .run();
  };
  const std::vector<Tensor> out = concat(1, longs({2, 3})).value();
  expect_tensor_equal(out[0], pairs({0, 0, 0, 3, 1, 1}));
  expect_tensor_equal(out[1], floats({1, 3, 2}));
  expect_tensor_equal(out[2], longs({2, 5}));
  expect_tensor_equal(concat(-2, longs({3, 2})).value()[2], longs({5, 2}));
  expect_invalid(concat(1, longs({3, 3})).status(),
                 "Input shapes must match: expected 2 for dimension 0 but got 3 at position 1");
  expect_invalid(concat(2, longs({2, 2})).status(), "in range [-2, 2)");
  EXPECT_EQ(*shapes("SparseConcat", "[2,?];[1,?];[2];?;?;[3]", {{"concat_dim", 0}}),
            "[3,3];[3];[3]");
  EXPECT_FALSE(shapes("SparseConcat", "[2,2];[1,3];?;?;?;?", {{"concat_dim", 0}}).ok());
}

TEST(SparseFillEmptyRows, GivesEachRowAnElement) {
  const auto fill = [](const Tensor& indices, const Tensor& values, const Tensor& shape) {
    return OpTester("SparseFillEmptyRows")
        .input(indices)
        .input(values)
        .input(shape)
        .input(Tensor::scalar(-1.F))
        .run();
  };
  const std::vector<Tensor> out =
      fill(pairs({2, 1, 0, 1, 2, 0}), floats({1, 2, 3}), longs({4, 3})).value();
  expect_tensor_equal(out[0], pairs({0, 1, 1, 0, 2, 1, 2, 0, 3, 0}));
  expect_tensor_equal(out[1], floats({2, -1, 1, 3, -1}));
  expect_tensor_equal(out[2], Tensor::vector<bool>({false, true, false, true}));
  expect_tensor_equal(out[3], longs({2, 0, 3}));
  EXPECT_EQ(fill(pairs({}), floats({}), longs({0, 3})).value()[1].shape(), (Shape{0}));
  expect_invalid(fill(pairs({0, 0}), floats({1}), longs({0, 3})).status(), "out of bounds");
}

TEST(SparseTensorDenseMatMul, WithAdjoints) {
  const auto product = [](bool adjoint_a, bool adjoint_b, const Tensor& b) {
    return OpTester("SparseTensorDenseMatMul")
        .attr("adjoint_a", adjoint_a)
        .attr("adjoint_b", adjoint_b)
        .input(pairs({0, 1, 1, 2}))
        .input(floats({2, 3}))
        .input(longs({2, 3}))
        .input(b)
        .run_one();
  };
  const Tensor tall = Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  expect_tensor_equal(*product(false, false, tall), Tensor::of<float>({2, 2}, {6, 8, 15, 18}));
  const Tensor wide = Tensor::of<float>({2, 3}, {1, 3, 5, 2, 4, 6});
  expect_tensor_equal(*product(false, true, wide), Tensor::of<float>({2, 2}, {6, 8, 15, 18}));
  expect_tensor_equal(*product(true, false, wide),
                      Tensor::of<float>({3, 3}, {0, 0, 0, 2, 6, 10, 6, 12, 18}));
  expect_invalid(product(false, false, wide).status(), "inner dimension does not match: 3 vs. 2");
  EXPECT_EQ(*shapes("SparseTensorDenseMatMul", "[?,2];?;[2];[3,4]"), "[?,4]");
}

TEST(SparseAdd, DropsWhatIsSmall) {
  const auto add = [](float least, const Tensor& shape) {
    return OpTester("SparseAdd")
        .input(pairs({0, 0, 1, 1}))
        .input(floats({1, 2}))
        .input(longs({2, 2}))
        .input(pairs({0, 0, 0, 1}))
        .input(floats({-1, 4}))
        .input(shape)
        .input(Tensor::scalar(least))
        .run();
  };
  const std::vector<Tensor> all = add(0, longs({2, 2})).value();
  expect_tensor_equal(all[0], pairs({0, 0, 0, 1, 1, 1}));
  expect_tensor_equal(all[1], floats({0, 4, 2}));
  expect_tensor_equal(add(2.5F, longs({2, 2})).value()[1], floats({4}));
  expect_invalid(add(0, longs({3, 2})).status(), "Input shapes must match");
}

TEST(SparseDenseCwise, BroadcastsTheDenseSide) {
  const auto run = [](const char* op, const Tensor& dense) {
    return OpTester(op)
        .input(pairs({0, 1, 1, 2}))
        .input(Tensor::vector<int32_t>({6, 8}))
        .input(longs({2, 3}))
        .input(dense)
        .run_one();
  };
  const Tensor row = Tensor::vector<int32_t>({1, 2, 4});
  expect_tensor_equal(*run("SparseDenseCwiseAdd", row), Tensor::vector<int32_t>({8, 12}));
  expect_tensor_equal(*run("SparseDenseCwiseMul", Tensor::of<int32_t>({2, 1}, {3, 5})),
                      Tensor::vector<int32_t>({18, 40}));
  expect_tensor_equal(*run("SparseDenseCwiseDiv", row), Tensor::vector<int32_t>({3, 2}));
  expect_invalid(run("SparseDenseCwiseDiv", Tensor::scalar(0)).status(), "division by zero");
  expect_invalid(
      run("SparseDenseCwiseAdd", Tensor::of<int32_t>({1, 2, 3}, {1, 2, 3, 4, 5, 6})).status(),
      "broadcasts dense to sparse only");
}

}  // namespace
}  // namespace millrace
