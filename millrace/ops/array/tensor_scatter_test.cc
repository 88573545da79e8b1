#include <gtest/gtest.h>

#include "millrace/graph/shape_testing.h"
#include "millrace/ops/array/array_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_array_ops});

Result<Tensor> scatter(const char* op, const Tensor& x, const Tensor& indices,
                       const Tensor& updates) {
  return OpTester(op).input(x).input(indices).input(updates).run_one();
}

TEST(TensorScatter, LeavesTheInputAlone) {
  for (const char* op : {"TensorScatterAdd", "TensorScatterSub", "ScatterNdNonAliasingAdd"}) {
    for (DType dtype : kernel_types(op)) {
      const Tensor x = make_tensor(dtype, {3}, {8, 9, 10}), before = *x.clone();
      const Tensor y = *scatter(op, x, Tensor::of<int32_t>({3, 1}, {2, 0, 2}),
                                make_tensor(dtype, {3}, {1, 2, 3}));
      const bool sub = std::string_view(op) == "TensorScatterSub";
      expect_tensor_equal(
          y, sub ? make_tensor(dtype, {3}, {6, 9, 6}) : make_tensor(dtype, {3}, {10, 9, 14}));
      expect_tensor_equal(x, before);
    }
  }
}

TEST(TensorScatter, Replaces) {
  for (DType dtype : moved_types()) {
    const Tensor x = random_tensor(dtype, {3, 2}, 1), rows = random_tensor(dtype, {2, 2}, 2);
    const Tensor y = *scatter("TensorScatterUpdate", x, Tensor::of<int64_t>({2, 1}, {2, 0}), rows);
    expect_tensor_equal(y.row(0), rows.row(1));
    expect_tensor_equal(y.row(1), x.row(1));
    expect_tensor_equal(y.row(2), rows.row(0));
  }
  const Tensor none = random_tensor(DType::kFloat, {0, 2}, 1);
  EXPECT_EQ(
      scatter("TensorScatterUpdate", none, Tensor::allocate(DType::kInt32, {0, 1}).value(), none)
          ->shape(),
      (Shape{0, 2}));
}

TEST(TensorScatter, BadInputs) {
  const Tensor x = Tensor::vector<float>({1, 2, 3}), two = Tensor::vector<float>({1, 2});
  expect_error(scatter("TensorScatterAdd", x, Tensor::of<int32_t>({2, 1}, {1, 3}), two).status(),
               Code::kInvalidArgument, "indices[1] = [3] does not index into shape [3]");
  expect_error(scatter("TensorScatterAdd", x, Tensor::of<int32_t>({2, 1}, {1, 0}), x).status(),
               Code::kInvalidArgument, "'updates' must have shape [2]");
  EXPECT_EQ(*infer_shapes(OpRegistry::global(), "TensorScatterAdd", {}, "[3,?];[2,1];[2,?]"),
            "[3,?]");
}

}  // namespace
}  // namespace millrace
