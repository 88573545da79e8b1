#include <gtest/gtest.h>

#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_queue_ops});

class SessionTensors : public testing::Test {
 protected:
  Result<Tensor> keep(const Tensor& value) {
    return OpTester(env_, "GetSessionHandle").input(value).run_one();
  }
  Result<Tensor> read(const Tensor& handle, DType dtype) {
    return OpTester(env_, "GetSessionTensor").attr("dtype", dtype).input(handle).run_one();
  }
  Status drop(const Tensor& handle) {
    return OpTester(env_, "DeleteSessionTensor").input(handle).run().status();
  }

  OpEnv env_;
};

void expect_error(const Status& status, std::string_view part) {
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
  EXPECT_NE(status.message().find(part), std::string_view::npos) << status.to_string();
}

TEST_F(SessionTensors, StayUntilTheyAreDeleted) {
  const Tensor floats = Tensor::vector<float>({1, 2});
  const Tensor strings = Tensor::vector<std::string>({"a", ""});
  const Tensor first = keep(floats).value();
  const Tensor second = keep(strings).value();
  EXPECT_EQ(first.shape(), Shape{});
  EXPECT_NE(first.item<std::string>(), second.item<std::string>());
  expect_tensor_equal(*read(first, DType::kFloat), floats);
  expect_tensor_equal(*read(second, DType::kString), strings);
  ASSERT_TRUE(drop(first).ok());
  expect_error(read(first, DType::kFloat).status(), "is not in the session store");
  expect_error(drop(first), "Failed to delete");
  expect_tensor_equal(*read(second, DType::kString), strings);
}

TEST_F(SessionTensors, RefuseWhatIsNoHandle) {
  const Tensor handle = keep(Tensor::scalar(1.0F)).value();
  expect_error(read(handle, DType::kInt32).status(), "has type float");
  expect_error(read(Tensor::scalar(std::string("x;0;y")), DType::kFloat).status(), "'x;0;y'");
  expect_error(read(Tensor::vector<std::string>({"a"}), DType::kFloat).status(),
               "must be a scalar");
  expect_error(drop(Tensor::vector<std::string>({})), "must be a scalar");
}

TEST_F(SessionTensors, AreNamedByResourcesToo) {
  const Tensor value = Tensor::scalar<int64_t>(7);
  const Tensor resource = OpTester(env_, "GetSessionHandleV2").input(value).run_one().value();
  const Tensor handle = Tensor::scalar(resource.item<ResourceHandle>().name);
  expect_tensor_equal(*read(handle, DType::kInt64), value);
}

}  // namespace
}  // namespace millrace
