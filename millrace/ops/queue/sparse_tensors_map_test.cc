#include <gtest/gtest.h>

#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_queue_ops});

Tensor longs(std::initializer_list<int64_t> values) { return Tensor::vector(values); }

class SparseTensorsMap : public testing::Test {
 protected:
  Result<Tensor> add(const std::string& op, const Tensor& indices, const Tensor& values,
                     const Tensor& shape) {
    MR_TRY_ASSIGN(std::vector<Tensor> out, OpTester(env_, op)
                                               .attr("shared_name", "map")
                                               .input(indices)
                                               .input(values)
                                               .input(shape)
                                               .run());
    return out[0];
  }
  Result<std::vector<Tensor>> take(const Tensor& handles, DType dtype = DType::kFloat) {
    return OpTester(env_, "TakeManySparseFromTensorsMap")
        .attr("shared_name", "map")
        .attr("dtype", dtype)
        .input(handles)
        .run();
  }
  void expect_error(const Status& status, std::string_view part) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
    EXPECT_NE(status.message().find(part), std::string_view::npos) << status.to_string();
  }

  OpEnv env_;
};

// A few bytes that ask for gigabytes of entries.
TEST_F(SparseTensorsMap, RefusesTooManyRows) {
  const Result<Tensor> handles = add("AddManySparseToTensorsMap", Tensor::of<int64_t>({0, 2}, {}),
                                     Tensor::vector<float>({}), longs({100'000'000, 2}));
  EXPECT_EQ(handles.status().code(), Code::kResourceExhausted) << handles.status().to_string();
}

TEST_F(SparseTensorsMap, StacksWhatWasAdded) {
  const Tensor a = add("AddSparseToTensorsMap", Tensor::of<int64_t>({2, 1}, {0, 3}),
                       Tensor::vector<float>({1, 2}), longs({4}))
                       .value();
  const Tensor b = add("AddSparseToTensorsMap", Tensor::of<int64_t>({1, 1}, {5}),
                       Tensor::vector<float>({3}), longs({6}))
                       .value();
  const std::vector<Tensor> out = take(longs({b.item<int64_t>(), a.item<int64_t>()})).value();
  expect_tensor_equal(out[0], Tensor::of<int64_t>({3, 2}, {0, 5, 1, 0, 1, 3}));
  expect_tensor_equal(out[1], Tensor::vector<float>({3, 1, 2}));
  expect_tensor_equal(out[2], longs({2, 6}));
  expect_error(take(longs({a.item<int64_t>()})).status(), "Unable to find SparseTensor");
}

TEST_F(SparseTensorsMap, CutsABatchIntoItsRows) {
  const Tensor handles =
      add("AddManySparseToTensorsMap", Tensor::of<int64_t>({3, 2}, {0, 1, 2, 0, 2, 4}),
          Tensor::vector<std::string>({"a", "b", "c"}), longs({3, 5}))
          .value();
  ASSERT_EQ(handles.dim(0), 3);
  const std::vector<Tensor> out = take(handles, DType::kString).value();
  expect_tensor_equal(out[0], Tensor::of<int64_t>({3, 2}, {0, 1, 2, 0, 2, 4}));
  expect_tensor_equal(out[1], Tensor::vector<std::string>({"a", "b", "c"}));
  expect_tensor_equal(out[2], longs({3, 5}));
}

TEST_F(SparseTensorsMap, RefusesWhatDoesNotFit) {
  const Tensor one = Tensor::vector<float>({1});
  expect_error(
      add("AddSparseToTensorsMap", Tensor::of<int64_t>({1, 2}, {0, 0}), one, longs({4})).status(),
      "a column for each of 1 dimensions");
  expect_error(
      add("AddManySparseToTensorsMap", Tensor::of<int64_t>({1, 2}, {7, 0}), one, longs({4, 4}))
          .status(),
      "below 4");
  expect_error(
      add("AddManySparseToTensorsMap", Tensor::of<int64_t>({1, 1}, {0}), one, longs({4})).status(),
      "rank: 1");
  const Tensor handle =
      add("AddSparseToTensorsMap", Tensor::of<int64_t>({1, 1}, {0}), one, longs({4})).value();
  expect_error(take(longs({handle.item<int64_t>(), 99})).status(), "99");
  EXPECT_TRUE(take(longs({handle.item<int64_t>()})).ok());
  expect_error(take(longs({})).status(), "at least 1");
}

}  // namespace
}  // namespace millrace
