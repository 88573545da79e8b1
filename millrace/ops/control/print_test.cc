#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/control/summarize.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/complex.h"
#include "millrace/tensor/half.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_control_ops});

Tensor numbers(Shape shape) {
  Tensor x = Tensor::allocate(DType::kFloat, shape).value();
  for (size_t i = 0; i < static_cast<size_t>(x.num_elements()); ++i) {
    x.mutable_data<float>()[i] = static_cast<float>(i);
  }
  return x;
}

TEST(Summarize, Dimensions) {
  EXPECT_EQ(summarize(numbers({10}), 3), "0 1 2...");
  EXPECT_EQ(summarize(numbers({3, 4}), 3), "[0 1 2...]...");
  EXPECT_EQ(summarize(numbers({3, 4}), 4), "[0 1 2 3]...");
  EXPECT_EQ(summarize(numbers({3, 4}), 6), "[0 1 2 3][4 5...]...");
  EXPECT_EQ(summarize(numbers({3, 4}), -1), "[0 1 2 3][4 5 6 7][8 9 10 11]");
  EXPECT_EQ(summarize(numbers({2, 2, 2}), 100), "[[0 1][2 3]][[4 5][6 7]]");
  EXPECT_EQ(summarize(numbers({3}), 0), "...");
  EXPECT_EQ(summarize(numbers({}), 3), "0");
  EXPECT_EQ(summarize(numbers({0}), 3), "");
  EXPECT_EQ(summarize(numbers({2, 0}), 3), "");
}

TEST(Summarize, Elements) {
  EXPECT_EQ(
      summarize(
          Tensor::vector<float>({1e10F, 1e-7F, 1.0F / 3, NAN, -INFINITY, -0.0F, 123456789.0F}), -1),
      "1e+10 1e-07 0.333333343 nan -inf -0 123456792");
  EXPECT_EQ(summarize(Tensor::vector<double>({1e10, 1e-7, 1 / 3.0}), -1),
            "10000000000 1e-07 0.33333333333333331");
  EXPECT_EQ(summarize(Tensor::vector<Half>({Half(1e-7F), Half(1.0F / 3)}), -1),
            "1.1920929e-07 0.333251953");
  EXPECT_EQ(summarize(Tensor::vector<bool>({true, false}), -1), "1 0");
  EXPECT_EQ(summarize(Tensor::vector<int8_t>({1, -2}), -1), "1 -2");
  EXPECT_EQ(summarize(Tensor::vector<uint64_t>({~uint64_t{0}}), -1), "18446744073709551615");
  EXPECT_EQ(summarize(Tensor::scalar(Complex64(1, 2.5F)), -1), "(1,2.5)");
  EXPECT_EQ(summarize(Tensor::vector<std::string>({"a\n\"b", "c\xff"}), -1), "a\\n\\\"b c\\377");
}

TEST(Print, WritesAndHandsOn) {
  const Tensor x = numbers({2});
  OpTester print("Print");
  print.attr("message", "x = ").input(x).input_list({numbers({5}), Tensor::scalar<int32_t>(7)});
  testing::internal::CaptureStderr();
  const Result<Tensor> y = print.run_one();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "x = [0 1 2...][7]\n");
  expect_tensor_equal(*y, x);
}

TEST(Print, FirstTimesOnly) {
  OpEnv env;
  OpTester print(env, "Print");
  print.attr("first_n", 2).input(numbers({1})).input_list({numbers({})});
  testing::internal::CaptureStderr();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(print.run().ok());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "[0]\n[0]\n");
}

TEST(PrintV2, Streams) {
  const auto print = [](const std::string& stream, const char* end = "\n") {
    return OpTester("PrintV2")
        .attr("output_stream", stream)
        .attr("end", end)
        .input(Tensor::scalar(std::string("hello")))
        .run()
        .status();
  };
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  EXPECT_TRUE(print("stderr").ok());
  EXPECT_TRUE(print("log(info)", "!").ok());
  EXPECT_TRUE(print("stdout", "").ok());
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "hello");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "hello\nhello!");
  const std::string path = testing::TempDir() + "print_v2_" + std::to_string(getpid());
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(print("file://" + path).ok());
  std::stringstream written;
  written << std::ifstream(path).rdbuf();
  EXPECT_EQ(written.str(), "hello\nhello\n");
  std::remove(path.c_str());
  EXPECT_EQ(print("file:///no/such/folder/file").code(), Code::kFailedPrecondition);
  EXPECT_TRUE(print("file://memory://print_v2/text").ok());
  EXPECT_EQ(print("elsewhere").code(), Code::kInvalidArgument);
}

TEST(Assert, ShowsTheData) {
  const auto check = [](bool condition) {
    return OpTester("Assert")
        .attr("summarize", 2)
        .input(Tensor::scalar(condition))
        .input_list({Tensor::scalar(std::string("x > y")), numbers({3})})
        .run()
        .status();
  };
  EXPECT_TRUE(check(true).ok());
  EXPECT_EQ(check(false).code(), Code::kInvalidArgument);
  EXPECT_EQ(check(false).message(), "assertion failed: [x > y] [0 1...]");
}

TEST(RefSelect, HandsOneVariableOn) {
  const Ref<RefCell> a = make_ref_cell(numbers({2})), b = make_ref_cell();
  const auto select = [&](int32_t index) {
    OpEnv env;
    OpTester tester(env, "RefSelect");
    tester.attr("T", DType::kFloat).attr("N", 2).input(Tensor::scalar(index));
    return tester.input_ref_list({a, b}).run_values();
  };
  EXPECT_EQ((*select(0))[0].cell, a);
  EXPECT_EQ((*select(1))[0].cell, b);
  for (int32_t bad : {-1, 2}) EXPECT_EQ(select(bad).status().code(), Code::kInvalidArgument);
}

TEST(Timestamp, GoesOn) {
  const double first = OpTester("Timestamp").run_one()->item<double>();
  EXPECT_GT(first, 1.7e9);
  EXPECT_GE(OpTester("Timestamp").run_one()->item<double>(), first);
}

}  // namespace
}  // namespace millrace
