#include <gtest/gtest.h>

#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_math_ops});

using C = Complex128;

TEST(AddN, SumsInEveryType) {
  for (DType dtype : kernel_types("AddN")) {
    for (int64_t n : {0, 1, 5, 5000}) {
      const Tensor x = make_tensor(dtype, {n}, std::vector<C>(static_cast<size_t>(n), 3));
      for (size_t count : {1, 2, 5}) {
        const Tensor sum =
            OpTester("AddN").input_list(std::vector<Tensor>(count, x)).run_one().value();
        EXPECT_EQ(values_of(sum),
                  std::vector<C>(static_cast<size_t>(n), 3.0 * static_cast<double>(count)))
            << dtype_name(dtype);
      }
    }
  }
}

TEST(AddN, RefusesOtherShapes) {
  const Tensor a = make_tensor(DType::kFloat, {2}, {1, 2}),
               b = make_tensor(DType::kFloat, {1}, {1});
  EXPECT_EQ(OpTester("AddN").input_list({a, b}).run().status().code(), Code::kInvalidArgument);
  EXPECT_EQ(*infer_shapes(OpRegistry::global(), "AddN", {}, "[2,?];[?,3]"), "[2,3]");
  EXPECT_FALSE(infer_shapes(OpRegistry::global(), "AddN", {}, "[2];[3]").ok());
}

std::vector<std::vector<C>> gradient_args(std::vector<int32_t> s0, std::vector<int32_t> s1) {
  const auto vector = [](const std::vector<int32_t>& v) {
    return Tensor::vector<int32_t>(std::span<const int32_t>(v));
  };
  const std::vector<Tensor> r =
      OpTester("BroadcastGradientArgs").input(vector(s0)).input(vector(s1)).run().value();
  return {values_of(r[0]), values_of(r[1])};
}

TEST(BroadcastGradientArgs, NamesTheRepeatedDimensions) {
  using Axes = std::vector<std::vector<C>>;
  EXPECT_EQ(gradient_args({2, 3, 5}, {1}), (Axes{{}, {0, 1, 2}}));
  EXPECT_EQ(gradient_args({1}, {2, 3, 5}), (Axes{{0, 1, 2}, {}}));
  EXPECT_EQ(gradient_args({2, 1, 5}, {3, 5}), (Axes{{1}, {0}}));
  EXPECT_EQ(gradient_args({2, 3}, {2, 3}), (Axes{{}, {}}));
  EXPECT_EQ(gradient_args({1, 2}, {1, 1}), (Axes{{0}, {0, 1}}));
  EXPECT_EQ(gradient_args({}, {3}), (Axes{{0}, {}}));
  EXPECT_EQ(gradient_args({0, 1}, {0, 3}), (Axes{{1}, {}}));
}

TEST(BroadcastGradientArgs, RefusesWhatDoesNotGoTogether) {
  const Tensor a = Tensor::vector<int64_t>({2}), b = Tensor::vector<int64_t>({3});
  EXPECT_EQ(OpTester("BroadcastGradientArgs").input(a).input(b).run().status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(OpTester("BroadcastArgs").input(a).input(b).run().status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(
      OpTester("BroadcastArgs").input(Tensor::scalar<int64_t>(1)).input(b).run().status().code(),
      Code::kInvalidArgument);
}

TEST(BroadcastGradientArgs, Rules) {
  const OpRegistry& ops = OpRegistry::global();
  EXPECT_EQ(*infer_shapes(ops, "BroadcastGradientArgs", {}, "[2];[3]"), "[?];[?]");
  EXPECT_EQ(*infer_values(ops, "BroadcastGradientArgs", {}, "=[2,1];=[3]"), "[1];[0]");
  EXPECT_EQ(*infer_values(ops, "BroadcastArgs", {}, "=[2,1];=[3]"), "[2,3]");
}

TEST(Complex, PartsAndWhole) {
  for (const auto& [part, whole] : {std::pair(DType::kFloat, DType::kComplex64),
                                    std::pair(DType::kDouble, DType::kComplex128)}) {
    const Tensor re = make_tensor(part, {2}, {3, -1}), im = make_tensor(part, {}, {4});
    const Tensor z = OpTester("Complex").attr("Tout", whole).input(re).input(im).run_one().value();
    EXPECT_EQ(values_of(z), (std::vector<C>{C(3, 4), C(-1, 4)}));
    EXPECT_EQ(values_of(*OpTester("Real").attr("Tout", part).input(z).run_one()),
              (std::vector<C>{3, -1}));
    EXPECT_EQ(values_of(*OpTester("Imag").attr("Tout", part).input(z).run_one()),
              (std::vector<C>{4, 4}));
    EXPECT_EQ(values_of(*OpTester("Conj").input(z).run_one()),
              (std::vector<C>{C(3, -4), C(-1, -4)}));
    EXPECT_EQ(values_of(*OpTester("ComplexAbs").attr("Tout", part).input(z).run_one())[0], 5.0);
  }
}

TEST(Complex, RefusesTypesThatDoNotMatch) {
  const Tensor z = make_tensor(DType::kComplex64, {1}, {1});
  const Status status = OpTester("Real").attr("Tout", DType::kDouble).input(z).run().status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("complex64"), std::string::npos);
}

}  // namespace
}  // namespace millrace
