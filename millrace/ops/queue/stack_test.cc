#include <gtest/gtest.h>

#include <list>

#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_queue_ops});

class StackForms : public testing::TestWithParam<bool> {
 protected:
  Value make(DType dtype = DType::kFloat, int max_size = -1) {
    OpTester tester(env_, form("Stack"));
    tester.attr("elem_type", dtype);
    if (GetParam()) tester.input(Tensor::scalar<int32_t>(max_size));
    return tester.run_values().value()[0];
  }
  Result<Tensor> push(const Value& stack, Tensor value) {
    return on(stack, "StackPush").input(std::move(value)).run_one();
  }
  Result<Tensor> pop(const Value& stack, DType dtype = DType::kFloat) {
    return on(stack, "StackPop").attr("elem_type", dtype).run_one();
  }
  Status close(const Value& stack) { return on(stack, "StackClose").run().status(); }
  OpTester& on(const Value& stack, const std::string& op) {
    OpTester& tester = testers_.emplace_back(env_, form(op));
    if (stack.is_ref()) {
      tester.input_ref(stack.cell);
    } else {
      tester.input(stack.tensor);
    }
    return tester;
  }
  static std::string form(const std::string& op) { return GetParam() ? op + "V2" : op; }

  OpEnv env_;
  std::list<OpTester> testers_;
};

void expect_invalid(const Status& status, std::string_view part) {
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
  EXPECT_NE(status.message().find(part), std::string_view::npos) << status.to_string();
}

INSTANTIATE_TEST_SUITE_P(Forms, StackForms, testing::Bool(),
                         [](const auto& info) { return info.param ? "Resource" : "Reference"; });

TEST_P(StackForms, LastInFirstOut) {
  const Value stack = make();
  for (float x : {1.0F, 2.0F, 3.0F}) {
    EXPECT_EQ(push(stack, Tensor::scalar(x)).value().item<float>(), x);
  }
  for (float x : {3.0F, 2.0F, 1.0F}) EXPECT_EQ(pop(stack).value().item<float>(), x);
  expect_invalid(pop(stack).status(), "is empty");
}

TEST_P(StackForms, HoldsAllTypes) {
  for (int t = 1; t < kNumDTypes; ++t) {
    const DType dtype = static_cast<DType>(t);
    SCOPED_TRACE(dtype_name(dtype));
    const Value stack = make(dtype);
    for (const Shape& shape : {Shape{}, Shape{2, 3}, Shape{0, 3}}) {
      const Tensor value = random_tensor(dtype, shape, 3);
      ASSERT_TRUE(push(stack, value).ok());
      expect_tensor_equal(pop(stack, dtype).value(), value);
    }
  }
}

TEST_P(StackForms, EachRunMakesAnother) {
  const Value a = make(), b = make();
  ASSERT_TRUE(push(a, Tensor::scalar(1.0F)).ok());
  expect_invalid(pop(b).status(), "is empty");
}

TEST_P(StackForms, EndsWithTheStep) {
  const Value stack = make();
  ASSERT_TRUE(push(stack, Tensor::scalar(1.0F)).ok());
  env_.next_step();
  EXPECT_EQ(pop(stack).status().code(), Code::kNotFound);
}

TEST_P(StackForms, Mistakes) {
  const Value stack = make();
  expect_invalid(push(stack, Tensor::scalar<int32_t>(1)).status(), "float");
  expect_invalid(pop(stack, DType::kInt32).status(), "float");
  ASSERT_TRUE(close(stack).ok());
  expect_invalid(push(stack, Tensor::scalar(1.0F)).status(), "already been closed");
  expect_invalid(pop(stack).status(), "already been closed");
}

TEST_P(StackForms, MaxSize) {
  if (!GetParam()) return;
  const Value stack = make(DType::kFloat, 1);
  ASSERT_TRUE(push(stack, Tensor::scalar(1.0F)).ok());
  expect_invalid(push(stack, Tensor::scalar(1.0F)).status(), "overflowed its max_size (1)");
}

}  // namespace
}  // namespace millrace
