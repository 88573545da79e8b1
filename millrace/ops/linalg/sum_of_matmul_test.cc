#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "millrace/base/str_cat.h"
#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_linalg_ops, register_math_ops});

struct Case {
  DType type;
  bool ta, tb;
  int64_t m, n;
  std::vector<int64_t> ks;  // of the products
  int added = 0;
};

std::string to_string(const Case& c) {
  return str_cat(dtype_name(c.type), ' ', c.ta, c.tb, ' ', c.m, 'x', c.n,
                 ", k: ", str_join(c.ks, " "), " and ", c.added);
}

struct Factors {
  std::vector<Tensor> added, a, b;
};

// Small integers, of which sums are exact in every type; or any numbers.
Factors factors(const Case& c, bool exact, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const auto matrix = [&](int64_t rows, int64_t columns, bool transposed) {
    const Shape shape = transposed ? Shape{columns, rows} : Shape{rows, columns};
    Tensor out = Tensor::allocate(c.type, shape).value();
    EXPECT_TRUE(dispatch<FloatingTypes>(c.type, [&]<class T>() {
                  for (T& x : out.mutable_data<T>()) {
                    x = static_cast<T>(exact ? static_cast<float>(random() % 5) - 2
                                             : normal(random));
                  }
                }).ok());
    return out;
  };
  Factors out;
  for (int i = 0; i < c.added; ++i) out.added.push_back(matrix(c.m, c.n, false));
  for (const int64_t k : c.ks) {
    out.a.push_back(matrix(c.m, k, c.ta));
    out.b.push_back(matrix(k, c.n, c.tb));
  }
  return out;
}

Result<Tensor> sum_at_once(const Case& c, const Factors& f) {
  OpTester op("_SumOfMatMul");
  op.attr("M", c.added)
      .attr("N", static_cast<int64_t>(c.ks.size()))
      .attr("transpose_a", c.ta)
      .attr("transpose_b", c.tb);
  for (const Tensor& term : f.added) op.input(term);
  for (const Tensor& a : f.a) op.input(a);
  for (const Tensor& b : f.b) op.input(b);
  return op.run_one();
}

Tensor sum_one_by_one(const Case& c, const Factors& f) {
  OpTester sum("AddN");
  sum.attr("N", static_cast<int64_t>(f.added.size() + c.ks.size()));
  for (const Tensor& term : f.added) sum.input(term);
  for (size_t i = 0; i < c.ks.size(); ++i) {
    OpTester product("MatMul");
    product.attr("transpose_a", c.ta).attr("transpose_b", c.tb).input(f.a[i]).input(f.b[i]);
    sum.input(product.run_one().value());
  }
  return sum.run_one().value();
}

TEST(SumOfMatMul, IsTheSumOfProducts) {
  uint32_t seed = 1;
  for (DType type : {DType::kFloat, DType::kDouble, DType::kHalf, DType::kBFloat16}) {
    for (int transposes = 0; transposes < 4; ++transposes) {
      for (const auto& [m, n] : {std::pair<int64_t, int64_t>{1, 1},
                                 {5, 3},
                                 {70, 65},
                                 {1, 40},
                                 {40, 1},
                                 {0, 3},
                                 {3, 0}}) {
        for (const std::vector<int64_t>& ks :
             {std::vector<int64_t>{4}, {1, 2}, {20, 20, 20}, {3, 0, 130, 1, 200, 7}, {0, 0}}) {
          const Case c{type,
                       (transposes & 1) != 0,
                       (transposes & 2) != 0,
                       m,
                       n,
                       ks,
                       /*added=*/static_cast<int>(seed % 4)};
          SCOPED_TRACE(to_string(c));
          const Factors f = factors(c, /*exact=*/true, seed++);
          const Result<Tensor> sum = sum_at_once(c, f);
          ASSERT_TRUE(sum.ok()) << sum.status().to_string();
          const Tensor wanted = sum_one_by_one(c, f);
          EXPECT_EQ(sum->shape(), wanted.shape());
          EXPECT_EQ(sum->to_string(), wanted.to_string());
          EXPECT_TRUE(dispatch<FloatingTypes>(type, [&]<class T>() {
                        EXPECT_TRUE(std::ranges::equal(sum->data<T>(), wanted.data<T>()));
                      }).ok());
        }
      }
    }
  }
}

// The matrices below each other.
Tensor stacked(const std::vector<Tensor>& parts) {
  int64_t rows = 0;
  for (const Tensor& part : parts) rows += part.dim(0);
  Tensor out = Tensor::allocate(DType::kFloat, {rows, parts[0].dim(1)}).value();
  float* to = out.mutable_data<float>().data();
  for (const Tensor& part : parts) to = std::ranges::copy(part.data<float>(), to).out;
  return out;
}

// What makes the optimiser's use of it a close pass: not the bits of the sum of products, but the
// error of one product whose sums are made term by term (docs/optimisation.md).
TEST(SumOfMatMul, ErrsAsOneProductDoes) {
  const Case c{DType::kFloat, true, false, 90, 80, std::vector<int64_t>(30, 20)};
  const Factors f = factors(c, /*exact=*/false, 7);
  const Tensor a = stacked(f.a), b = stacked(f.b);
  const Tensor at_once = sum_at_once(c, f).value();
  double error_at_once = 0, error_of_one = 0;
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t j = 0; j < c.n; ++j) {
      double sum = 0, size = 0;
      float term_by_term = 0;
      for (int64_t p = 0; p < a.dim(0); ++p) {
        const double term = static_cast<double>(a.data<float>()[static_cast<size_t>(p * c.m + i)]) *
                            static_cast<double>(b.data<float>()[static_cast<size_t>(p * c.n + j)]);
        sum += term;
        size += std::abs(term);
        term_by_term += static_cast<float>(term);
      }
      const size_t at = static_cast<size_t>(i * c.n + j);
      error_at_once += std::abs(at_once.data<float>()[at] - sum);
      error_of_one += std::abs(static_cast<double>(term_by_term) - sum);
      EXPECT_LE(std::abs(at_once.data<float>()[at] - sum), 600 * 0x1p-24 * size);
    }
  }
  EXPECT_LE(error_at_once, 1.2 * error_of_one);
}

TEST(SumOfMatMul, BadInputs) {
  const Case c{DType::kFloat, false, false, 2, 3, {4, 4}};
  const auto error = [&](size_t which, const Shape& shape) {
    Factors f = factors(c, true, 1);
    (which < 2 ? f.a[which] : f.b[which - 2]) = Tensor::zeros(DType::kFloat, shape).value();
    return sum_at_once(c, f).status().to_string();
  };
  EXPECT_NE(error(1, {2, 5}).find("inner dimensions of product 1 differ: [2,5] x [4,3]"),
            std::string::npos);
  EXPECT_NE(error(1, {3, 4}).find("product 1 has shape [3,3]"), std::string::npos);
  EXPECT_NE(error(3, {4, 2}).find("product 1 has shape [2,2]"), std::string::npos);
  EXPECT_NE(error(2, {4}).find("INVALID_ARGUMENT"), std::string::npos);
  const Case more{DType::kFloat, false, false, 2, 3, {4}, 2};
  Factors f = factors(more, true, 1);
  f.added[1] = Tensor::zeros(DType::kFloat, {2, 2}).value();
  EXPECT_NE(sum_at_once(more, f).status().to_string().find("of one shape"), std::string::npos);
}

TEST(SumOfMatMul, Shapes) {
  const OpRegistry& ops = OpRegistry::global();
  const AttrMap two = {{"M", 0}, {"N", 2}, {"T", DType::kFloat}};
  EXPECT_EQ(*infer_shapes(ops, "_SumOfMatMul", two, "[2,?];?;?;[4,3]"), "[2,3]");
  EXPECT_EQ(*infer_shapes(ops, "_SumOfMatMul", two, "?;?;?;?"), "[?,?]");
  const AttrMap added = {{"M", 2}, {"N", 1}, {"T", DType::kFloat}};
  EXPECT_EQ(*infer_shapes(ops, "_SumOfMatMul", added, "[2,?];[?,3];?;?"), "[2,3]");
  EXPECT_FALSE(infer_shapes(ops, "_SumOfMatMul", added, "[2,3];[2,2];?;?").ok());
  EXPECT_FALSE(infer_shapes(ops, "_SumOfMatMul", added, "[2,3];?;[1,4];?").ok());
  EXPECT_FALSE(infer_shapes(ops, "_SumOfMatMul", two, "[2,1];[3,1];[1,4];[1,4]").ok());
  EXPECT_FALSE(infer_shapes(ops, "_SumOfMatMul", two, "[2,1];[2,1];[1,4];[2,4]").ok());
}

}  // namespace
}  // namespace millrace
