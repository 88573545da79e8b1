// Several ops over vectors in registers: to the bit what their own loops give one after the other.

#include "millrace/ops/math/sweep_loops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "millrace/ops/math/elementwise_kernels.h"
#include "millrace/ops/reduce/row_fold.h"

namespace millrace {
namespace {

constexpr const char* kBinary[] = {
    "Add",     "AddV2",   "Sub",      "Mul",         "RealDiv", "Div", "SquaredDifference",
    "Maximum", "Minimum", "TanhGrad", "SigmoidGrad", "ReluGrad"};
constexpr const char* kUnary[] = {"Neg", "Square", "Relu", "Sqrt", "Abs"};
constexpr int64_t kLengths[] = {1, 3, 15, 16, 17, 64, 100, 127, 128, 129, 400, 1024, 2048};

std::vector<float> numbers(uint32_t seed, int64_t n) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<size_t>(n));
  for (float& v : out) v = normal(random);
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(SweepLoops, EachOpIsTheOp) {
  for (const Isa isa : kIsas) {
    if (isa > machine_isa()) break;
    const SweepLoops& loops = isa_table<SweepLoops>(isa);
    for (const char* op : kBinary) {
      const BinaryFunction function(*find_binary_info(op), DType::kFloat);
      const int number = loops.find(op);
      ASSERT_GE(number, 0) << op;
      for (unsigned form = 0; form < 4; ++form) {
        const bool swapped = (form & SweepStep::kSwapped) != 0;
        const bool single = (form & SweepStep::kSingle) != 0;
        for (int64_t n : kLengths) {
          const std::vector<float> x = numbers(1, n);
          std::vector<float> y = numbers(2, n), wanted(x.size()), got(x.size());
          if (single) std::fill(y.begin(), y.end(), y[0]);
          function(swapped ? y.data() : x.data(), swapped ? x.data() : y.data(), wanted.data(), n);
          const SweepStep step{static_cast<uint8_t>(number), static_cast<uint8_t>(form), y.data()};
          loops.run(x.data(), &step, 1, n, got.data(), nullptr, 0);
          EXPECT_TRUE(same_bits(got, wanted)) << isa_name(isa) << " " << op << " form " << form;
        }
      }
    }
    for (const char* op : kUnary) {
      const UnaryFunction function(*find_unary_info(op), DType::kFloat);
      for (int64_t n : kLengths) {
        const std::vector<float> x = numbers(3, n);
        std::vector<float> wanted(x.size()), got = x;
        function(x.data(), wanted.data(), n);
        const SweepStep step{static_cast<uint8_t>(loops.find(op)), 0, nullptr};
        loops.run(got.data(), &step, 1, n, got.data(), nullptr, 0);  // in place
        EXPECT_TRUE(same_bits(got, wanted)) << isa_name(isa) << " " << op;
      }
    }
    for (const char* op : {"Tanh", "AddN", "BiasAdd", "Less"}) EXPECT_EQ(loops.find(op), -1) << op;
  }
}

TEST(SweepLoops, SumsAreThoseOfTheOp) {
  const RowFold sum = RowFold::make("Sum", DType::kFloat).value();
  for (const Isa isa : kIsas) {
    if (isa > machine_isa()) break;
    const SweepLoops& loops = isa_table<SweepLoops>(isa);
    for (int64_t n : kLengths) {
      if (n <= 16) continue;
      const std::vector<float> x = numbers(4, 2 * n), y = numbers(5, 2 * n);
      std::vector<float> product(static_cast<size_t>(n)), out = product;
      const SweepStep steps[] = {
          {static_cast<uint8_t>(loops.find("Mul")), SweepStep::kAhead, y.data()},
          {static_cast<uint8_t>(loops.find("Neg")), 0, nullptr}};
      for (size_t i = 0; i < product.size(); ++i) product[i] = -(x[i] * y[i]);
      float wanted, got;
      sum.rows(product.data(), 1, n, &wanted);
      loops.run(x.data(), steps, 2, n, nullptr, &got, SweepLoops::kAheadOfX);
      EXPECT_EQ(got, wanted) << isa_name(isa) << " " << n;
      loops.run(x.data(), steps, 2, n, out.data(), &got, 0);
      EXPECT_EQ(got, wanted) << isa_name(isa) << " " << n;
      EXPECT_TRUE(same_bits(out, product));
    }
  }
}

}  // namespace
}  // namespace millrace
