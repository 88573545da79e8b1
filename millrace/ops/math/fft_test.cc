#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_math_ops});

using C = Complex128;

Tensor random_tensor(DType type, const Shape& shape, std::mt19937& random) {
  std::vector<C> values;
  const auto draw = [&] { return static_cast<double>(random() % 2001) / 1000 - 1; };
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    const double real = draw();
    values.emplace_back(real, draw());
  }
  return make_tensor(type, shape, values);
}

// By the definition, along dimension `dim`.
std::vector<C> by_definition(std::vector<C> x, const Shape& shape, int dim, bool inverse) {
  size_t inner = 1;
  const auto n = static_cast<size_t>(shape.dim(dim));
  for (int i = dim + 1; i < shape.rank(); ++i) inner *= static_cast<size_t>(shape.dim(i));
  std::vector<C> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t k = i / inner % n, first = i - k * inner;
    for (size_t j = 0; j < n; ++j) {
      const double angle = 2 * M_PI * static_cast<double>(j * k % n) / static_cast<double>(n);
      y[i] += x[first + j * inner] * std::polar(1.0, inverse ? angle : -angle);
    }
    if (inverse) y[i] /= static_cast<double>(n);
  }
  return y;
}

TEST(Fft, AgreesWithTheDefinition) {
  std::mt19937 random(3);
  const char* const names[2][3] = {{"FFT", "FFT2D", "FFT3D"}, {"IFFT", "IFFT2D", "IFFT3D"}};
  for (DType type : {DType::kComplex64, DType::kComplex128}) {
    for (const Shape& shape : {Shape{2, 1, 3, 4}, Shape{1, 5, 8, 7}, Shape{1, 2, 1, 16},
                               Shape{1, 1, 3, 60}, Shape{1, 1, 2, 97}, Shape{1, 1, 1, 1}}) {
      for (bool inverse : {false, true}) {
        const Tensor input = random_tensor(type, shape, random);
        std::vector<C> want = values_of(input);
        for (int rank = 1; rank <= 3; ++rank) {
          want = by_definition(want, shape, 4 - rank, inverse);
          const char* const op = names[inverse ? 1 : 0][rank - 1];
          const std::vector<C> got = values_of(*OpTester(op).input(input).run_one());
          ASSERT_EQ(got.size(), want.size());
          for (size_t i = 0; i < want.size(); ++i) {
            ASSERT_LE(std::abs(got[i] - want[i]), type == DType::kComplex64 ? 3e-6 : 1e-12)
                << str_cat(op, " ", shape, " ", i);
          }
        }
      }
    }
  }
}

// Half of the spectrum, and back.
TEST(Fft, OfRealNumbers) {
  std::mt19937 random(4);
  const char* const names[2][3] = {{"RFFT", "RFFT2D", "RFFT3D"}, {"IRFFT", "IRFFT2D", "IRFFT3D"}};
  for (DType type : {DType::kFloat, DType::kDouble}) {
    for (int n : {1, 2, 7, 8}) {
      const Shape shape{2, 2, 3, n};
      const Tensor input = random_tensor(type, shape, random);
      const DType complex = type == DType::kFloat ? DType::kComplex64 : DType::kComplex128;
      const double near = type == DType::kFloat ? 3e-6 : 1e-12;
      std::vector<C> want = values_of(input);
      for (int rank = 1; rank <= 3; ++rank) {
        SCOPED_TRACE(str_cat(type, " ", n, " ", rank));
        want = by_definition(want, shape, 4 - rank, false);
        std::vector<int32_t> sizes = {2, 3, n};
        const Tensor lengths = make_tensor(DType::kInt32, Shape{rank},
                                           std::vector<C>(sizes.end() - rank, sizes.end()));
        const Tensor got = OpTester(names[0][rank - 1])
                               .attr("Tcomplex", complex)
                               .input(input)
                               .input(lengths)
                               .run_one()
                               .value();
        const int half = n / 2 + 1;
        ASSERT_EQ(got.shape(), Shape({2, 2, 3, half}));
        const std::vector<C> halves = values_of(got);
        for (size_t i = 0; i < halves.size(); ++i) {
          const size_t line = i / static_cast<size_t>(half), k = i % static_cast<size_t>(half);
          ASSERT_LE(std::abs(halves[i] - want[line * static_cast<size_t>(n) + k]), near) << i;
        }
        const std::vector<C> back = values_of(OpTester(names[1][rank - 1])
                                                  .attr("Treal", type)
                                                  .input(got)
                                                  .input(lengths)
                                                  .run_one()
                                                  .value());
        const std::vector<C> again = values_of(input);
        for (size_t i = 0; i < again.size(); ++i)
          ASSERT_LE(std::abs(back[i] - again[i]), near) << i;
      }
    }
  }
  OpTester longer("RFFT");
  longer.input(Tensor::vector<float>({1, 2})).input(Tensor::vector<int32_t>({3}));
  EXPECT_EQ(longer.run().status().code(), Code::kInvalidArgument);
}

TEST(Fft, OfNothingAndOfTooFewDimensions) {
  const Tensor none = Tensor::zeros(DType::kComplex64, {2, 0}).value();
  EXPECT_EQ(OpTester("FFT").input(none).run_one().value().shape(), Shape({2, 0}));
  EXPECT_EQ(OpTester("IFFT2D").input(none).run_one().value().shape(), Shape({2, 0}));
  OpTester op("FFT3D");
  EXPECT_EQ(op.input(none).run().status().code(), Code::kInvalidArgument);
}

TEST(Fft, Shapes) {
  const OpRegistry& ops = OpRegistry::global();
  EXPECT_EQ(*infer_shapes(ops, "FFT2D", {}, "[2,?,3]"), "[2,?,3]");
  EXPECT_EQ(*infer_shapes(ops, "IFFT", {}, "?"), "?");
  EXPECT_EQ(*infer_shapes(ops, "RFFT", {}, "[2,8];[1]"), "[2,?]");
  EXPECT_FALSE(infer_shapes(ops, "RFFT2D", {}, "[2,8];[1]").ok());
  EXPECT_FALSE(infer_shapes(ops, "FFT3D", {}, "[2,3]").ok());
}

}  // namespace
}  // namespace millrace
