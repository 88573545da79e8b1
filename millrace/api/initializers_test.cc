#include "millrace/api/initializers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "millrace/api/client_session.h"
#include "millrace/api/variables.h"

namespace millrace {
namespace {

using namespace initializers;

// The first value of a variable called `name` in a program with this seed.
Result<Tensor> first_value(const Initializer& initializer, const Shape& shape,
                           DType dtype = DType::kDouble, int64_t seed = 1,
                           std::string_view name = "v") {
  Scope root = Scope::make_root();
  Variables vars(root, seed);
  Variable& v = vars.get(root, name, shape, dtype, initializer);
  Expr value = root.ok() ? v.read(root) : Expr();
  MR_TRY_ASSIGN(ClientSession session, ClientSession::create(root));
  MR_TRY(session.run({}, {}, {vars.initialize()}).status());
  MR_TRY_ASSIGN(std::vector<Tensor> out, session.run({}, {value}));
  return out[0];
}

struct Statistics {
  double mean = 0, stddev = 0, min = 0, max = 0;
};
Statistics statistics(const Tensor& t) {
  std::span<const double> x = t.data<double>();
  Statistics s = {.min = x[0], .max = x[0]};
  const auto n = static_cast<double>(x.size());
  for (double v : x) {
    s.mean += v / n;
    s.min = std::min(s.min, v);
    s.max = std::max(s.max, v);
  }
  for (double v : x) s.stddev += (v - s.mean) * (v - s.mean) / n;
  s.stddev = std::sqrt(s.stddev);
  return s;
}

TEST(Initializers, FillWithANumber) {
  for (DType dtype :
       {DType::kHalf, DType::kBFloat16, DType::kFloat, DType::kDouble, DType::kInt32}) {
    EXPECT_EQ(first_value(zeros(), {2}, dtype).value().to_string(),
              Tensor::zeros(dtype, {2}).value().to_string());
  }
  EXPECT_TRUE(bit_equal(first_value(ones(), {2}).value(), Tensor::vector<double>({1, 1})));
  EXPECT_TRUE(bit_equal(first_value(constant(-2.5), {}).value(), Tensor::scalar(-2.5)));
  Tensor given = Tensor::of<double>({1, 2}, {3, 4});
  EXPECT_TRUE(bit_equal(first_value(value(given), {1, 2}).value(), given));
  EXPECT_EQ(first_value(value(given), {2, 1}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(first_value(value(given), {1, 2}, DType::kFloat).status().code(),
            Code::kInvalidArgument);
}

TEST(Initializers, DrawFromTheDistributionTheyName) {
  const Shape many = {200, 200};
  Statistics u = statistics(first_value(uniform(-1, 3), many).value());
  EXPECT_NEAR(u.mean, 1, 0.03);
  EXPECT_NEAR(u.stddev, 4 / std::sqrt(12.0), 0.02);
  EXPECT_GE(u.min, -1);
  EXPECT_LT(u.max, 3);
  Statistics n = statistics(first_value(normal(5, 2), many).value());
  EXPECT_NEAR(n.mean, 5, 0.05);
  EXPECT_NEAR(n.stddev, 2, 0.05);
  EXPECT_GT(n.max, 10);
  Statistics t = statistics(first_value(truncated_normal(5, 2), many).value());
  EXPECT_NEAR(t.mean, 5, 0.05);
  EXPECT_NEAR(t.stddev, 2 * 0.8796, 0.05);
  EXPECT_GE(t.min, 1);
  EXPECT_LE(t.max, 9);
}

TEST(Initializers, FansFollowFromTheShape) {
  EXPECT_EQ(fans_of({}).in, 1);
  EXPECT_EQ(fans_of({7}).in, 7);
  EXPECT_EQ(fans_of({7}).out, 7);
  EXPECT_EQ(fans_of({3, 5}).in, 3);
  EXPECT_EQ(fans_of({3, 5}).out, 5);
  EXPECT_EQ(fans_of({3, 3, 4, 8}).in, 36);
  EXPECT_EQ(fans_of({3, 3, 4, 8}).out, 72);
}

TEST(Initializers, VarianceScalesWithTheFans) {
  const Shape shape = {100, 400};
  auto stddev = [&](const Initializer& i) {
    return statistics(first_value(i, shape).value()).stddev;
  };
  EXPECT_NEAR(stddev(glorot_uniform()), std::sqrt(1 / 250.0), 1e-3);
  EXPECT_NEAR(stddev(glorot_normal()), std::sqrt(1 / 250.0), 1e-3);
  EXPECT_NEAR(stddev(he_uniform()), std::sqrt(2 / 100.0), 2e-3);
  EXPECT_NEAR(stddev(he_normal()), std::sqrt(2 / 100.0), 2e-3);
  EXPECT_NEAR(stddev(lecun_normal()), std::sqrt(1 / 100.0), 2e-3);
  EXPECT_NEAR(stddev(variance_scaling({4, Fan::kOut, Distribution::kNormal})), std::sqrt(4 / 400.0),
              2e-3);
  EXPECT_EQ(first_value(glorot_uniform(), {0, 3}).value().num_elements(), 0);
}

TEST(Initializers, OrthogonalMatricesAreOrthogonal) {
  for (const Shape& shape :
       {Shape{8, 8}, Shape{20, 6}, Shape{6, 20}, Shape{3, 3, 2, 5}, Shape{1, 1}}) {
    for (DType dtype : {DType::kFloat, DType::kDouble}) {
      Tensor t = first_value(orthogonal(2), shape, dtype).value();
      const auto columns = static_cast<size_t>(shape.dim(shape.rank() - 1));
      const size_t rows = static_cast<size_t>(t.num_elements()) / columns;
      auto at = [&](size_t i, size_t j) {
        const size_t k = rows < columns ? j * columns + i : i * columns + j;
        return (dtype == DType::kFloat ? static_cast<double>(t.data<float>()[k])
                                       : t.data<double>()[k]) /
               2;
      };
      const size_t few = std::min(rows, columns), many = std::max(rows, columns);
      for (size_t a = 0; a < few; ++a) {
        for (size_t b = 0; b < few; ++b) {
          double dot = 0;
          for (size_t i = 0; i < many; ++i) dot += at(i, a) * at(i, b);
          EXPECT_NEAR(dot, a == b ? 1 : 0, dtype == DType::kFloat ? 1e-6 : 1e-12)
              << shape.to_string();
        }
      }
    }
  }
  EXPECT_EQ(first_value(orthogonal(), {4}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(first_value(orthogonal(), {0, 4}).status().code(), Code::kInvalidArgument);
}

TEST(Initializers, IdentityMayBeRectangular) {
  EXPECT_TRUE(bit_equal(first_value(identity(2), {2, 3}).value(),
                        Tensor::of<double>({2, 3}, {2, 0, 0, 0, 2, 0})));
  EXPECT_EQ(first_value(identity(), {4}).status().code(), Code::kInvalidArgument);
}

TEST(Initializers, TheSameSeedAndNameDrawTheSame) {
  auto draw = [](int64_t program, std::string_view name, int64_t own) {
    return first_value(normal(0, 1, own), {4}, DType::kDouble, program, name).value();
  };
  EXPECT_TRUE(bit_equal(draw(1, "a", 0), draw(1, "a", 0)));
  EXPECT_FALSE(bit_equal(draw(1, "a", 0), draw(1, "b", 0)));
  EXPECT_FALSE(bit_equal(draw(1, "a", 0), draw(2, "a", 0)));
  EXPECT_FALSE(bit_equal(draw(0, "a", 0), draw(0, "a", 0)));
  EXPECT_TRUE(bit_equal(draw(0, "a", 7), draw(1, "b", 7)));
}

}  // namespace
}  // namespace millrace
