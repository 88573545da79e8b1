// test-labels: threads
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "millrace/base/thread_pool.h"
#include "millrace/ops/linalg/gemm.h"
#include "millrace/tensor/half.h"

namespace millrace {
namespace {

// With numbers whose sums round.
template <class T>
void expect_same_bits_on_all_threads() {
  std::mt19937 random(9);
  std::uniform_real_distribution<float> uniform(-1, 1);
  // The last number: whether the right matrix lies transposed, or, 2, the left one.
  for (const auto [m, n, k, transposed] : {std::array<int64_t, 4>{1, 3000, 800, 0},
                                           {100, 500, 700, 0},
                                           {100, 700, 900, 0},
                                           {900, 90, 600, 0},
                                           {40, 70, 7001, 0},
                                           {20, 1300, 1301, 0},
                                           {20, 650, 2600, 1},
                                           {33, 1000, 130, 0},
                                           {256, 256, 1100, 0},
                                           {300, 200, 530, 1},
                                           {1500, 130, 70, 0},
                                           {1500, 20, 300, 0},
                                           {300, 90, 700, 2},
                                           {50, 601, 800, 1}}) {
    std::vector<T> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(k * n));
    for (T& x : a) x = T(uniform(random));
    for (T& x : b) x = T(uniform(random));
    std::vector<T> one(static_cast<size_t>(m * n)), many = one;
    const auto left = transposed == 2 ? MatrixView<T>::of(a.data(), m).transposed()
                                      : MatrixView<T>::of(a.data(), k),
               right = transposed == 1 ? MatrixView<T>::of(b.data(), k).transposed()
                                       : MatrixView<T>::of(b.data(), n);
    ASSERT_TRUE(matmul(m, n, k, left, right, one.data(), run_serially).ok());
    for (const int threads : {2, 4, 8}) {
      ThreadPool pool(threads);
      const auto on_pool = [&](int64_t units, double cost,
                               FunctionRef<void(int64_t, int64_t)> body) {
        pool.parallel_for(units, cost, body);
      };
      ASSERT_TRUE(matmul(m, n, k, left, right, many.data(), on_pool).ok());
      EXPECT_EQ(std::memcmp(one.data(), many.data(), one.size() * sizeof(T)), 0)
          << m << "x" << n << "x" << k << " on " << threads;
    }
  }
}

TEST(Gemm, ThreadsDoNotChangeBits) { expect_same_bits_on_all_threads<float>(); }
TEST(Gemm, ThreadsDoNotChangeBitsOfBFloat16) { expect_same_bits_on_all_threads<BFloat16>(); }

}  // namespace
}  // namespace millrace
