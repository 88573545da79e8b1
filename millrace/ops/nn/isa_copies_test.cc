#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "millrace/ops/nn/batch_norm_loops.h"
#include "millrace/ops/nn/depthwise_loops.h"
#include "millrace/ops/nn/lrn_loops.h"
#include "millrace/ops/nn/pool_loops.h"
#include "millrace/ops/nn/softmax_rows.h"

namespace millrace {
namespace {

template <class T>
class IsaCopies : public testing::Test {
 protected:
  std::vector<T> numbers(int64_t n) {
    std::vector<T> values;
    for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<T>(normal_(random_)));
    return values;
  }

  // What `compute(table, results)` appends to results is the same for every instruction set.
  template <class Table, class F>
  void expect_same_bits(F compute) {
    std::vector<T> wanted;
    compute(isa_table<Table>(Isa::kBaseline), wanted);
    for (const Isa isa : kIsas) {
      if (isa > machine_isa()) break;
      std::vector<T> got;
      compute(isa_table<Table>(isa), got);
      ASSERT_EQ(got.size(), wanted.size());
      if (got.empty()) continue;
      EXPECT_EQ(std::memcmp(got.data(), wanted.data(), got.size() * sizeof(T)), 0) << isa_name(isa);
    }
  }

 private:
  std::mt19937 random_{17};
  std::normal_distribution<double> normal_;
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(IsaCopies, Types);

template <class T>
void append(const std::vector<T>& values, std::vector<T>& to) {
  to.insert(to.end(), values.begin(), values.end());
}

// All results of `rows` rows, one after the other.
template <class T>
std::vector<T> softmax_results(const SoftmaxRows<T>& table, const T* x, const T* labels,
                               int64_t rows, int64_t n) {
  std::vector<T> results, y(static_cast<size_t>(rows * n + 1), T{5});
  std::vector<T> losses(static_cast<size_t>(rows));
  std::vector<int64_t> classes;
  for (int64_t i = 0; i < rows; ++i) classes.push_back(i % std::max<int64_t>(n, 1));
  table.softmax(x, rows, n, y.data());
  append(y, results);
  std::copy(x, x + rows * n, y.data());
  table.softmax(y.data(), rows, n, y.data());
  append(y, results);
  table.log_softmax(x, rows, n, y.data());
  append(y, results);
  table.cross_entropy(x, labels, rows, n, y.data(), losses.data());
  append(y, results);
  append(losses, results);
  if (n > 0) table.class_cross_entropy(x, classes.data(), rows, n, y.data(), losses.data());
  append(y, results);
  append(losses, results);
  if (n > 0 && rows > 0) {
    std::vector<T> alone(losses.size());
    table.class_cross_entropy(x, classes.data(), rows, n, nullptr, alone.data());
    EXPECT_EQ(std::memcmp(alone.data(), losses.data(), losses.size() * sizeof(T)), 0);
  }
  EXPECT_EQ(y.back(), T{5}) << "written beyond the end";
  return results;
}

TYPED_TEST(IsaCopies, Softmax) {
  using T = TypeParam;
  std::vector<T> x = this->numbers(40 * 200);
  x[300] = x[301] = static_cast<T>(INFINITY);
  x[700] = static_cast<T>(-INFINITY);
  x[1100] = -1000;
  std::vector<T> labels = this->numbers(40 * 200);
  for (size_t i = 0; i < labels.size(); i += 3) labels[i] = 0;
  this->template expect_same_bits<SoftmaxRows<T>>([&](const auto& table, std::vector<T>& results) {
    for (int64_t n : {0, 1, 2, 7, 16, 17, 63, 128, 129, 200}) {
      for (int64_t rows : {0, 1, 5, 16, 40}) {
        append(softmax_results(table, x.data(), labels.data(), rows, n), results);
      }
    }
  });
}

// A row's results do not depend on how many there are.
TYPED_TEST(IsaCopies, SoftmaxOfARowAlone) {
  using T = TypeParam;
  constexpr int64_t kRows = 21;
  for (int64_t n : {1, 3, 10, 33, 128, 150}) {
    const std::vector<T> x = this->numbers(kRows * n);
    this->template expect_same_bits<SoftmaxRows<T>>([&](const auto& table, std::vector<T>&) {
      std::vector<T> together(x.size()), alone(x.size());
      table.softmax(x.data(), kRows, n, together.data());
      for (int64_t i = 0; i < kRows; ++i) {
        table.softmax(x.data() + i * n, 1, n, alone.data() + i * n);
      }
      EXPECT_EQ(together, alone) << n;
    });
  }
}

TYPED_TEST(IsaCopies, BatchNorm) {
  using T = TypeParam;
  constexpr int64_t kRows = 11;
  for (int64_t channels : {1, 5, 16, 37}) {
    const int64_t n = kRows * channels;
    const std::vector<T> x = this->numbers(n), dy = this->numbers(n);
    const std::vector<T> a = this->numbers(channels), b = this->numbers(channels),
                         c = this->numbers(channels), d = this->numbers(channels);
    this->template expect_same_bits<BatchNormLoops<T>>([&](const auto& loops,
                                                           std::vector<T>& results) {
      std::vector<T> mean = a, other = b, scratch(static_cast<size_t>(2 * channels)), y = x;
      loops.add_statistics(x.data(), kRows, channels, 3, scratch.data(), mean.data(), other.data());
      loops.add_products(dy.data(), x.data(), kRows, channels, a.data(), mean.data(), other.data());
      append(mean, results);
      append(other, results);
      loops.normalize(x.data(), kRows, channels, a.data(), b.data(), c.data(), y.data());
      append(y, results);
      loops.differentiate(dy.data(), x.data(), kRows, channels, a.data(), b.data(), c.data(),
                          d.data(), y.data());
      append(y, results);
      T sums[2] = {1, 2};
      loops.add_plane_statistics(x.data(), n, 3, &sums[0], &sums[1]);
      loops.add_plane_products(dy.data(), x.data(), n, a[0], &sums[0], &sums[1]);
      append({sums[0], sums[1]}, results);
      loops.normalize_plane(x.data(), n, a[0], b[0], c[0], y.data());
      append(y, results);
      loops.differentiate_plane(dy.data(), x.data(), n, a[0], b[0], c[0], d[0], y.data());
      append(y, results);
    });
  }
}

TYPED_TEST(IsaCopies, LocalResponseNormalization) {
  using T = TypeParam;
  if constexpr (std::is_same_v<T, float>) {
    for (int64_t channels : {1, 5, 16, 37}) {
      const std::vector<T> x = this->numbers(channels), y = this->numbers(channels),
                           dy = this->numbers(channels);
      for (float beta : {0.5F, 0.6F, 0.75F, 1.0F}) {
        for (int64_t radius : {0, 2, 50}) {
          const LrnParameters p{.radius = radius, .bias = 2, .alpha = 0.3F, .beta = beta};
          this->template expect_same_bits<LrnLoops>([&](const LrnLoops& loops,
                                                        std::vector<T>& results) {
            std::vector<T> scratch(static_cast<size_t>(p.scratch_size(channels)));
            std::vector<T> out(x.size());
            loops.forward(p, x.data(), channels, scratch.data(), out.data());
            append(out, results);
            loops.backward(p, x.data(), y.data(), dy.data(), channels, scratch.data(), out.data());
            append(out, results);
          });
        }
      }
    }
  }
}

// Channels in one go, and cut in two.
TYPED_TEST(IsaCopies, Pools) {
  using T = TypeParam;
  for (int64_t channels : {1, 5, 16, 37, 101}) {
    const PoolVolume g{.depth = {.input = 3, .window = 2, .output = 2},
                       .height = {.input = 7, .window = 3, .stride = 2, .before = 1, .output = 4},
                       .width = {.input = 9, .window = 3, .before = 1, .output = 9},
                       .channels = channels};
    const int64_t row_size = g.width.output * channels;
    const int64_t rows = g.depth.output * g.height.output;
    const int64_t image_size = g.depth.input * g.height.input * g.width.input * channels;
    const std::vector<T> image = this->numbers(image_size), values = this->numbers(image_size),
                         dy = this->numbers(rows * row_size);
    std::vector<T> whole;
    for (int64_t cut : {int64_t{0}, channels / 3}) {
      std::vector<T> cut_results;
      this->template expect_same_bits<PoolLoops<T>>([&](const auto& loops,
                                                        std::vector<T>& results) {
        std::vector<T> sums(image.size()), shares(image.size());
        for (int64_t row = 0; row < rows; ++row) {
          std::vector<T> max(static_cast<size_t>(row_size)), average = max, at_max = max;
          const T* const dy_row = dy.data() + row * row_size;
          for (const auto& [from, to] : {std::pair(int64_t{0}, cut), std::pair(cut, channels)}) {
            loops.max(g, image.data(), row, from, to, max.data());
            loops.average(g, image.data(), row, from, to, average.data());
            loops.at_max(g, image.data(), values.data(), row, from, to, at_max.data());
            loops.max_gradient(g, image.data(), dy_row, row, from, to, sums.data());
            loops.average_gradient(g, dy_row, row, from, to, shares.data());
          }
          append(max, results);
          append(average, results);
          append(at_max, results);
        }
        append(sums, results);
        append(shares, results);
        cut_results = results;
      });
      if (cut == 0) whole = cut_results;
      EXPECT_EQ(cut_results, whole);
    }
  }
}

TYPED_TEST(IsaCopies, Depthwise) {
  using T = TypeParam;
  for (int64_t channels : {1, 5, 16, 37}) {
    DepthwiseGeometry g;
    g.batch = 1;
    g.height = {.input = 7, .window = 3, .stride = 2, .before = 1, .output = 4};
    g.width = {.input = 9, .window = 3, .before = 1, .output = 9};
    g.channels = channels;
    const std::vector<T> image = this->numbers(g.image_size()), dy = this->numbers(g.output_size()),
                         filter = this->numbers(g.filter_size());
    this->template expect_same_bits<DepthwiseLoops<T>>(
        [&](const auto& loops, std::vector<T>& results) {
          std::vector<T> out(static_cast<size_t>(g.width.output * channels));
          std::vector<T> dx(static_cast<size_t>(g.width.input * channels)), sums = filter;
          for (int64_t oy = 0; oy < g.height.output; ++oy) {
            loops.forward(g, image.data(), filter.data(), oy, out.data());
            append(out, results);
            loops.backward_filter(g, image.data(), dy.data() + oy * g.width.output * channels, oy,
                                  sums.data());
          }
          append(sums, results);
          for (int64_t iy = 0; iy < g.height.input; ++iy) {
            loops.backward_input(g, filter.data(), dy.data(), iy, dx.data());
            append(dx, results);
          }
        });
  }
}

}  // namespace
}  // namespace millrace
