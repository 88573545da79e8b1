#include "millrace/ops/linalg/gemm.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "millrace/tensor/complex.h"
#include "millrace/tensor/half.h"

namespace millrace {
namespace {

template <class T>
T small_number(std::mt19937& random) {
  // Small integers: every sum is exact in every type, so results must agree to the bit.
  const int v = static_cast<int>(random() % 7) - 3;
  if constexpr (is_complex_v<T>) {
    return T(static_cast<typename T::value_type>(v),
             static_cast<typename T::value_type>(random() % 5));
  } else {
    return static_cast<T>(v);
  }
}

template <class T>
std::vector<T> numbers(int64_t count, std::mt19937& random) {
  std::vector<T> v(static_cast<size_t>(count));
  for (T& x : v) x = small_number<T>(random);
  return v;
}

template <class T>
class GemmTest : public testing::Test {};
using Types = testing::Types<float, double, Half, BFloat16, int32_t, int64_t, uint32_t, uint64_t,
                             Complex64, Complex128>;
TYPED_TEST_SUITE(GemmTest, Types);

TYPED_TEST(GemmTest, AgreesWithTheDefinition) {
  using T = TypeParam;
  const unsigned seed = 7;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const int64_t sizes[] = {0, 1, 2, 3, 5, 8, 12, 13, 31, 32, 33, 65};
  for (int round = 0; round < 150; ++round) {
    const auto size = [&] { return sizes[random() % std::size(sizes)]; };
    const int64_t m = size(), n = size(), k = size();
    const bool ta = random() % 2, tb = random() % 2;
    SCOPED_TRACE(testing::Message() << m << "x" << n << "x" << k << " " << ta << tb);
    const std::vector<T> a = numbers<T>(m * k, random), b = numbers<T>(k * n, random);
    auto left = MatrixView<T>::of(a.data(), ta ? m : k),
         right = MatrixView<T>::of(b.data(), tb ? k : n);
    if (ta) left = left.adjoint();
    if (tb) right = right.adjoint();
    std::vector<T> got = numbers<T>(m * n, random), want = got;
    ASSERT_TRUE(matmul(m, n, k, left, right, got.data(), run_serially).ok());
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        T sum{};
        for (int64_t p = 0; p < k; ++p) {
          T x = a[static_cast<size_t>(ta ? p * m + i : i * k + p)];
          T y = b[static_cast<size_t>(tb ? j * k + p : p * n + j)];
          if constexpr (is_complex_v<T>) {
            if (ta) x = std::conj(x);
            if (tb) y = std::conj(y);
          }
          sum = sum + x * y;
        }
        want[static_cast<size_t>(i * n + j)] = sum;
      }
    }
    ASSERT_EQ(got, want);
  }
}

TYPED_TEST(GemmTest, LargeBlocks) {
  using T = TypeParam;
  std::mt19937 random(11);
  const int64_t m = 700, n = 41, k = 330;  // several blocks of rows and of k
  const std::vector<T> a = numbers<T>(m * k, random), b = numbers<T>(k * n, random);
  std::vector<T> got(static_cast<size_t>(m * n)), want = got;
  const auto left = MatrixView<T>::of(a.data(), k), right = MatrixView<T>::of(b.data(), n);
  ASSERT_TRUE(matmul(m, n, k, left, right, got.data(), run_serially).ok());
  matmul_reference(m, n, k, left, right, want.data());
  EXPECT_EQ(got, want);
}

// Every instruction set that this machine has, with real numbers.
TEST(Gemm, EveryInstructionSet) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const Isa isa : kIsas) {
    if (isa > machine_isa()) break;
    const GemmKernels<float>& kernels = isa_table<GemmKernels<float>>(isa);
    for (const auto [m, n, k] : {std::array<int64_t, 3>{1, 700, 9}, {37, 70, 50}, {150, 33, 700}}) {
      SCOPED_TRACE(testing::Message() << isa_name(isa) << ": " << m << "x" << n << "x" << k);
      std::vector<float> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(k * n));
      for (float& x : a) x = normal(random);
      for (float& x : b) x = normal(random);
      std::vector<float> got(static_cast<size_t>(m * n)), want = got;
      const StridedSource<float> left(a.data(), k, 1), right(b.data(), 1, n);
      ASSERT_TRUE(gemm<float>({m, n, k, left, right, got.data(), n}, run_serially, kernels).ok());
      matmul_reference(m, n, k, MatrixView<float>::of(a.data(), k),
                       MatrixView<float>::of(b.data(), n), want.data());
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-3) << i;
    }
  }
}

// Operands that are read in place, copied on the way or packed, shared by all tasks or not, and
// sums of contiguous columns, on every instruction set.
TEST(Gemm, EveryWayToReadOperands) {
  std::mt19937 random(8);
  const int64_t rows[] = {2, 6, 7, 20, 48, 49, 250}, columns[] = {7, 17, 33, 64, 130, 576, 1100};
  const int64_t depths[] = {30, 256, 390, 801};
  for (const Isa isa : kIsas) {
    if (isa > machine_isa()) break;
    const GemmKernels<float>& kernels = isa_table<GemmKernels<float>>(isa);
    for (int round = 0; round < 80; ++round) {
      const int64_t m = rows[random() % std::size(rows)],
                    n = columns[random() % std::size(columns)];
      const int64_t k = depths[random() % std::size(depths)];
      const bool ta = random() % 2, tb = random() % 2;
      SCOPED_TRACE(testing::Message()
                   << isa_name(isa) << ": " << m << "x" << n << "x" << k << " " << ta << tb);
      const std::vector<float> a = numbers<float>(m * k, random), b = numbers<float>(k * n, random);
      auto left = MatrixView<float>::of(a.data(), ta ? m : k),
           right = MatrixView<float>::of(b.data(), tb ? k : n);
      if (ta) left = left.transposed();
      if (tb) right = right.transposed();
      std::vector<float> got(static_cast<size_t>(m * n), 7.0f), want = got;
      const StridedSource<float> lines(left.data, left.row_step, left.column_step);
      const StridedSource<float> others(right.data, right.column_step, right.row_step);
      ASSERT_TRUE(gemm<float>({m, n, k, lines, others, got.data(), n}, run_serially, kernels).ok());
      matmul_reference(m, n, k, left, right, want.data());
      ASSERT_EQ(got, want);
    }
  }
}

// A small C and a long k, which is summed in parts, added to what is there, between other columns.
TEST(Gemm, PartsOfK) {
  std::mt19937 random(6);
  for (const auto [m, n, k] :
       {std::array<int64_t, 3>{1, 40, 3000}, {13, 35, 2561}, {50, 64, 9001}}) {
    SCOPED_TRACE(testing::Message() << m << "x" << n << "x" << k);
    const std::vector<float> a = numbers<float>(m * k, random), b = numbers<float>(k * n, random);
    std::vector<float> product(static_cast<size_t>(m * n));
    matmul_reference(m, n, k, MatrixView<float>::of(a.data(), m).transposed(),
                     MatrixView<float>::of(b.data(), n), product.data());
    const StridedSource<float> left(a.data(), 1, m), right(b.data(), 1, n);
    for (bool accumulate : {false, true}) {
      std::vector<float> c(static_cast<size_t>(m * (n + 3)), 1.0f);
      ASSERT_TRUE(
          gemm<float>({m, n, k, left, right, c.data(), n + 3, accumulate}, run_serially).ok());
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n + 3; ++j) {
          const float sum = j < n ? product[static_cast<size_t>(i * n + j)] : 0;
          ASSERT_EQ(c[static_cast<size_t>(i * (n + 3) + j)],
                    sum + (accumulate || j >= n ? 1.0f : 0.0f));
        }
      }
    }
  }
}

// Panels from lines in memory: squares of whole vectors, of four, and what is left of both.
TEST(Gemm, InterleavesLines) {
  const unsigned seed = 24;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (const Isa isa : kIsas) {
    if (isa > machine_isa()) break;
    const GemmKernels<float>& kernels = isa_table<GemmKernels<float>>(isa);
    for (int round = 0; round < 60; ++round) {
      const int width = 1 + static_cast<int>(random() % kMaxPanel);
      const int count = 1 + static_cast<int>(random() % static_cast<unsigned>(width));
      const int64_t length = 1 + static_cast<int64_t>(random() % 70);
      SCOPED_TRACE(testing::Message()
                   << isa_name(isa) << ": " << count << " of " << width << ", " << length);
      const std::vector<float> lines = numbers<float>(count * length, random);
      std::vector<const float*> rows;
      for (int i = 0; i < count; ++i) rows.push_back(lines.data() + i * length);
      std::vector<float> got(static_cast<size_t>(width * length), 7.0f), want(got.size());
      for (int64_t p = 0; p < length; ++p) {
        for (int i = 0; i < count; ++i) want[static_cast<size_t>(p * width + i)] = rows[i][p];
      }
      kernels.interleave(rows.data(), count, width, length, got.data());
      ASSERT_EQ(got, want);
    }
  }
}

// Few rows times a wide matrix that lies either way, added to what is there, beside other columns;
// the left matrix lies as it is read, transposed, or at a distance that makes it worth packing.
TEST(Gemm, FewRowsOfAWideMatrix) {
  const unsigned seed = 21;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (const Isa isa : kIsas) {
    if (isa > machine_isa()) break;
    const GemmKernels<float>& kernels = isa_table<GemmKernels<float>>(isa);
    for (int round = 0; round < 80; ++round) {
      const int64_t m = 1 + static_cast<int64_t>(random() % 60), n = 250 + random() % 90;
      const int64_t k = random() % 3 == 0 ? 512 : 200 + random() % 2000;
      const bool ta = random() % 2, tb = random() % 2, accumulate = random() % 2;
      SCOPED_TRACE(testing::Message() << isa_name(isa) << ": " << m << "x" << n << "x" << k << " "
                                      << ta << tb << accumulate);
      const std::vector<float> a = numbers<float>(m * k, random), b = numbers<float>(k * n, random);
      auto left = MatrixView<float>::of(a.data(), ta ? m : k),
           right = MatrixView<float>::of(b.data(), tb ? k : n);
      if (ta) left = left.transposed();
      if (tb) right = right.transposed();
      std::vector<float> product(static_cast<size_t>(m * n));
      matmul_reference(m, n, k, left, right, product.data());
      const StridedSource<float> lines(left.data, left.row_step, left.column_step);
      const StridedSource<float> others(right.data, right.column_step, right.row_step);
      const int64_t ldc = n + 3;
      std::vector<float> c(static_cast<size_t>(m * ldc), 1.0f);
      ASSERT_TRUE(
          gemm<float>({m, n, k, lines, others, c.data(), ldc, accumulate}, run_serially, kernels)
              .ok());
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < ldc; ++j) {
          const float sum = j < n ? product[static_cast<size_t>(i * n + j)] : 0;
          ASSERT_EQ(c[static_cast<size_t>(i * ldc + j)],
                    sum + (accumulate || j >= n ? 1.0f : 0.0f));
        }
      }
    }
  }
}

// Both matrices lie with their lines side by side, the result is small: it may be turned, and is
// summed by strips or, where the operands are small too, by tiles.
TEST(Gemm, SumsAtHand) {
  const unsigned seed = 22;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (const Isa isa : kIsas) {
    if (isa > machine_isa()) break;
    const GemmKernels<float>& kernels = isa_table<GemmKernels<float>>(isa);
    for (int round = 0; round < 40; ++round) {
      const int64_t m = 1 + static_cast<int64_t>(random() % 200), n = 1 + random() % 200;
      const int64_t k = 60 + random() % (round % 2 == 0 ? 60 : 600);
      const bool accumulate = random() % 2;
      SCOPED_TRACE(testing::Message()
                   << isa_name(isa) << ": " << m << "x" << n << "x" << k << " " << accumulate);
      const std::vector<float> a = numbers<float>(m * k, random), b = numbers<float>(k * n, random);
      std::vector<float> product(static_cast<size_t>(m * n));
      matmul_reference(m, n, k, MatrixView<float>::of(a.data(), m).transposed(),
                       MatrixView<float>::of(b.data(), n), product.data());
      const StridedSource<float> left(a.data(), 1, m), right(b.data(), 1, n);
      const int64_t ldc = n + 2;
      std::vector<float> c(static_cast<size_t>(m * ldc), 1.0f);
      ASSERT_TRUE(
          gemm<float>({m, n, k, left, right, c.data(), ldc, accumulate}, run_serially, kernels)
              .ok());
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < ldc; ++j) {
          const float sum = j < n ? product[static_cast<size_t>(i * n + j)] : 0;
          ASSERT_EQ(c[static_cast<size_t>(i * ldc + j)],
                    sum + (accumulate || j >= n ? 1.0f : 0.0f));
        }
      }
    }
  }
}

// Of bfloat16 the products are exact and the sums those of float; the result is rounded once. Both
// matrices lie either way, with lines of odd and of even length, at any place.
TEST(Gemm, BFloat16IsSummedInFloat) {
  const unsigned seed = 23;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const int64_t sizes[] = {1, 2, 7, 20, 33, 64, 150, 257};
  for (int round = 0; round < 120; ++round) {
    const auto size = [&] { return sizes[random() % std::size(sizes)]; };
    const int64_t m = size(), n = size(), k = random() % 4 == 0 ? 1400 + size() : size();
    const bool ta = random() % 2, tb = random() % 2;
    const size_t begin = random() % 2;
    SCOPED_TRACE(testing::Message() << m << "x" << n << "x" << k << " " << ta << tb << begin);
    std::vector<BFloat16> a(static_cast<size_t>(m * k) + begin);
    std::vector<BFloat16> b(static_cast<size_t>(k * n) + begin);
    for (BFloat16& x : a) x = BFloat16(normal(random));
    for (BFloat16& x : b) x = BFloat16(normal(random));
    auto left = MatrixView<BFloat16>::of(a.data() + begin, ta ? m : k),
         right = MatrixView<BFloat16>::of(b.data() + begin, tb ? k : n);
    if (ta) left = left.transposed();
    if (tb) right = right.transposed();
    std::vector<BFloat16> c(static_cast<size_t>(m * n));
    ASSERT_TRUE(matmul(m, n, k, left, right, c.data(), run_serially).ok());
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, magnitude = 0;
        for (int64_t p = 0; p < k; ++p) {
          const double term =
              static_cast<double>(left.data[i * left.row_step + p * left.column_step]) *
              static_cast<double>(right.data[p * right.row_step + j * right.column_step]);
          sum += term;
          magnitude += std::abs(term);
        }
        ASSERT_NEAR(c[static_cast<size_t>(i * n + j)], sum,
                    0x1p-8 * std::abs(sum) + 0x1p-21 * magnitude)
            << i << ", " << j;
      }
    }
  }
}

TEST(Gemm, AccumulatesAndScattersRows) {
  std::mt19937 random(5);
  const int64_t m = 29, n = 37, k = 400;
  const std::vector<float> a = numbers<float>(m * k, random), b = numbers<float>(k * n, random);
  std::vector<float> product(static_cast<size_t>(m * n));
  matmul_reference(m, n, k, MatrixView<float>::of(a.data(), k), MatrixView<float>::of(b.data(), n),
                   product.data());
  const StridedSource<float> left(a.data(), k, 1), right(b.data(), 1, n);
  std::vector<float> c(static_cast<size_t>(2 * m * n), 1.0f);
  GemmProblem<float> problem{m, n, k, left, right, c.data(), n, true};
  // Rows in reverse order, every second one.
  problem.row_offsets = [](const void*, int64_t row, int64_t count, int64_t* offsets) {
    for (int64_t i = 0; i < count; ++i) offsets[i] = 2 * (28 - row - i) * 37;
  };
  ASSERT_TRUE(gemm(problem, run_serially).ok());
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      ASSERT_EQ(c[static_cast<size_t>(2 * (m - 1 - i) * n + j)],
                product[static_cast<size_t>(i * n + j)] + 1);
      ASSERT_EQ(c[static_cast<size_t>((2 * (m - 1 - i) + 1) * n + j)], 1.0f);
    }
  }
}

}  // namespace
}  // namespace millrace
