#include <gtest/gtest.h>

#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_reduce_ops});

using C = Complex128;

Result<Tensor> scan(const char* op, const Tensor& x, int32_t axis, bool exclusive = false,
                    bool reverse = false) {
  return OpTester(op)
      .attr("exclusive", exclusive)
      .attr("reverse", reverse)
      .input(x)
      .input(Tensor::scalar(axis))
      .run_one();
}

TEST(Scans, Directions) {
  const Tensor x = Tensor::vector<int32_t>({2, 3, 4});
  expect_tensor_equal(*scan("Cumsum", x, 0), Tensor::vector<int32_t>({2, 5, 9}));
  expect_tensor_equal(*scan("Cumsum", x, 0, true), Tensor::vector<int32_t>({0, 2, 5}));
  expect_tensor_equal(*scan("Cumsum", x, 0, false, true), Tensor::vector<int32_t>({9, 7, 4}));
  expect_tensor_equal(*scan("Cumsum", x, -1, true, true), Tensor::vector<int32_t>({7, 4, 0}));
  expect_tensor_equal(*scan("Cumprod", x, 0), Tensor::vector<int32_t>({2, 6, 24}));
  expect_tensor_equal(*scan("Cumprod", x, 0, true), Tensor::vector<int32_t>({1, 2, 6}));
  expect_tensor_equal(*scan("Cumprod", x, 0, false, true), Tensor::vector<int32_t>({24, 12, 4}));
  expect_tensor_equal(*scan("Cumprod", x, 0, true, true), Tensor::vector<int32_t>({12, 4, 1}));
}

TEST(Scans, EveryTypeAndAxis) {
  const Shape shape = {2, 3, 300};
  for (const char* op : {"Cumsum", "Cumprod"}) {
    const std::vector<DType> types = kernel_types(op);
    ASSERT_EQ(types.size(), 14u);
    for (DType dtype : types) {
      for (int axis : {0, 1}) {
        std::vector<C> values(static_cast<size_t>(shape.num_elements()));
        for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 3);
        const Tensor x = make_tensor(dtype, shape, values);
        const size_t step = axis == 0 ? 900 : 300;
        std::vector<C> expected = values;
        for (size_t i = 0; i < values.size(); ++i) {
          const size_t at = i / step % static_cast<size_t>(shape.dim(axis));
          if (at == 0) continue;
          const C before = expected[i - step];
          expected[i] = op[3] == 's' ? before + values[i] : before * values[i];
        }
        EXPECT_EQ(values_of(*scan(op, x, axis)), expected) << op << " " << dtype_name(dtype);
      }
    }
  }
}

TEST(Scans, WriteOverAnInputNobodyElseHolds) {
  Tensor x = Tensor::vector<float>({1, 2, 3});
  const void* memory = x.raw();
  OpTester op("Cumsum");
  op.movable(true).input(std::move(x)).input(Tensor::scalar<int32_t>(0));
  const Tensor y = *op.run_one();
  EXPECT_EQ(y.raw(), memory);
  expect_tensor_equal(y, Tensor::vector<float>({1, 3, 6}));
}

TEST(Scans, EmptyAndBadInputs) {
  const Tensor empty = Tensor::allocate(DType::kFloat, {0, 2}).value();
  for (int32_t axis : {0, 1}) EXPECT_EQ(scan("Cumsum", empty, axis)->shape(), Shape({0, 2}));
  EXPECT_EQ(scan("Cumsum", empty, 2).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(scan("Cumprod", empty, -3).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(scan("Cumsum", Tensor::scalar(1.0F), 0).status().code(), Code::kInvalidArgument);
  const OpRegistry& ops = OpRegistry::global();
  EXPECT_EQ(*infer_shapes(ops, "Cumsum", {}, "[2,?];=1"), "[2,?]");
  EXPECT_FALSE(infer_shapes(ops, "Cumsum", {}, "[2];[2]").ok());
}

}  // namespace
}  // namespace millrace
