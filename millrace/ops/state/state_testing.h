#pragma once

#include <gtest/gtest.h>

#include <string>

#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"

// Words for tests of variables.

namespace millrace {

class StateTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { register_for_tests({register_state_ops, register_training_ops}); }

  OpTester op(std::string_view name) { return OpTester(env_, name); }

  Tensor handle(std::string_view name, DType dtype = DType::kFloat,
                PartialShape shape = PartialShape()) {
    return op("VarHandleOp")
        .attr("shared_name", name)
        .attr("dtype", dtype)
        .attr("shape", std::move(shape))
        .run_one()
        .value();
  }
  // The handle of a variable with this value.
  Tensor variable(std::string_view name, Tensor value) {
    Tensor resource = handle(name, value.dtype());
    EXPECT_TRUE(assign(resource, std::move(value)).ok());
    return resource;
  }
  Status assign(const Tensor& resource, Tensor value) {
    return op("AssignVariableOp").input(resource).input(std::move(value)).run().status();
  }
  Result<Tensor> read(const Tensor& resource, DType dtype = DType::kFloat) {
    return op("ReadVariableOp").attr("dtype", dtype).input(resource).run_one();
  }

  OpEnv env_;
};

inline void expect_error(const Status& status, Code code, std::string_view part) {
  EXPECT_EQ(status.code(), code) << status.to_string();
  EXPECT_NE(status.message().find(part), std::string_view::npos) << status.to_string();
}
template <class T>
void expect_error(const Result<T>& result, Code code, std::string_view part) {
  expect_error(result.status(), code, part);
}

inline void expect_equal(const Result<Tensor>& result, const Tensor& expected) {
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_TRUE(bit_equal(*result, expected))
      << result->to_string(64) << "\nexpected " << expected.to_string(64);
}

}  // namespace millrace
