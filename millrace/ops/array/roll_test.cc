// Roll ParallelConcat EnsureShape Snapshot DeepCopy.

#include <gtest/gtest.h>

#include <limits>

#include "millrace/graph/shape_testing.h"
#include "millrace/ops/array/array_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_array_ops});

Result<Tensor> roll(const Tensor& x, const Index& shift, const Index& axis) {
  return OpTester("Roll")
      .input(x)
      .input(int_vector(shift, DType::kInt64))
      .input(int_vector(axis))
      .run_one();
}

TEST(Roll, EveryTypeAndAxis) {
  const Shape shape = {2, 3, 4};
  for (DType dtype : moved_types()) {
    const Tensor x = random_tensor(dtype, shape, 1);
    // Both shifts of the last dimension count: 5 - 2.
    const Tensor y = *roll(x, {1, 5, -7, -2}, {0, 2, 1, -1});
    expect_tensor_equal(y, pick(x, shape, [&](const Index& at) {
                          return flat_index(
                              shape, {(at[0] + 1) % 2, (at[1] + 7) % 3, (at[2] + 4 - 3) % 4});
                        }));
    expect_tensor_equal(*roll(x, {}, {}), x);
  }
  const Tensor row = Tensor::vector<int32_t>({1, 2, 3});
  expect_tensor_equal(*OpTester("Roll")
                           .input(row)
                           .input(Tensor::scalar<int32_t>(-1))
                           .input(Tensor::scalar<int64_t>(0))
                           .run_one(),
                      Tensor::vector<int32_t>({2, 3, 1}));
  EXPECT_TRUE(roll(row, {std::numeric_limits<int64_t>::min()}, {0}).ok());
  EXPECT_EQ(roll(random_tensor(DType::kFloat, {2, 0}, 1), {1, 1}, {0, 1})->shape(), (Shape{2, 0}));
}

TEST(Roll, BadInputs) {
  const Tensor x = random_tensor(DType::kFloat, {2, 3}, 1);
  expect_error(roll(x, {1, 1}, {1}).status(), Code::kInvalidArgument, "the same size");
  expect_error(roll(x, {1}, {2}).status(), Code::kInvalidArgument, "axis");
  expect_error(roll(Tensor::scalar(1.0F), {1}, {0}).status(), Code::kInvalidArgument, "");
  EXPECT_EQ(*infer_shapes(OpRegistry::global(), "Roll", {}, "[2,?];[];[]"), "[2,?]");
}

TEST(ParallelConcat, JoinsRows) {
  for (DType dtype : moved_types()) {
    const Tensor a = random_tensor(dtype, {1, 3}, 1), b = random_tensor(dtype, {1, 3}, 2);
    const Tensor y =
        *OpTester("ParallelConcat").attr("shape", Shape{2, 3}).input_list({a, b}).run_one();
    expect_tensor_equal(y.rows(0, 1), a);
    expect_tensor_equal(y.rows(1, 2), b);
  }
  const Tensor a = random_tensor(DType::kFloat, {1, 3}, 1);
  const auto join = [](std::vector<Tensor> rows, const PartialShape& shape) {
    return OpTester("ParallelConcat").attr("shape", shape).input_list(std::move(rows)).run_one();
  };
  expect_error(join({a}, Shape{2, 3}).status(), Code::kInvalidArgument, "number of values, 1");
  expect_error(join({a}, Shape{1, 2}).status(), Code::kInvalidArgument, "value 0 must have shape");
  EXPECT_FALSE(join({a}, PartialShape()).ok());
}

TEST(Identities, HandOnOrCopy) {
  for (DType dtype : moved_types()) {
    const Tensor x = random_tensor(dtype, {2, 3}, 1);
    EXPECT_TRUE(OpTester("Snapshot").input(x).run_one()->shares_buffer_with(x));
    const Tensor copy = *OpTester("DeepCopy").input(x).run_one();
    EXPECT_FALSE(copy.shares_buffer_with(x));
    expect_tensor_equal(copy, x);
    const auto ensure = [&](const PartialShape& shape) {
      return OpTester("EnsureShape").attr("shape", shape).input(x).run_one();
    };
    expect_tensor_equal(*ensure(PartialShape({2, -1})), x);
    expect_error(ensure(PartialShape({3, -1})).status(), Code::kInvalidArgument,
                 "[2,3] is not compatible with expected shape [3,?].");
  }
  EXPECT_EQ(*infer_shapes(OpRegistry::global(), "EnsureShape", {{"shape", PartialShape({-1, 3})}},
                          "[2,?]"),
            "[2,3]");
}

}  // namespace
}  // namespace millrace
