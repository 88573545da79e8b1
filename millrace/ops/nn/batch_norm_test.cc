#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "millrace/graph/shape_testing.h"
#include "millrace/ops/nn/nn_testing.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_nn_ops});

using Doubles = std::vector<double>;

constexpr double kEpsilon = 0.25;

// x as [outer, channels, inner], the definition in double.
struct Reference {
  int64_t outer, channels, inner;

  size_t at(int64_t o, int64_t c, int64_t i) const {
    return static_cast<size_t>((o * channels + c) * inner + i);
  }
  double count() const { return static_cast<double>(outer * inner); }
  template <class F>
  double sum(int64_t c, F f) const {
    double total = 0;
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) total += f(at(o, c, i));
    }
    return total;
  }
  double mean(const Doubles& x, int64_t c) const {
    return sum(c, [&](size_t i) { return x[i]; }) / count();
  }
  double variance(const Doubles& x, int64_t c) const {
    const double m = mean(x, c);
    return sum(c, [&](size_t i) { return (x[i] - m) * (x[i] - m); }) / count();
  }
};

struct Case {
  Shape shape;
  const char* format;
};
const Case kCases[] = {{{2, 3, 4, 5}, "NHWC"},     {{2, 3, 4, 5}, "NCHW"},
                       {{1, 1, 1, 3}, "NHWC"},     {{9, 16, 7, 33}, "NHWC"},
                       {{3, 4, 70, 65}, "NCHW"},   {{5, 2, 1, 1}, "NCHW"},
                       {{2, 3, 2, 2, 4}, "NDHWC"}, {{2, 3, 2, 2, 4}, "NCDHW"}};

Reference reference_of(const Case& c) {
  const bool last = std::string(c.format).back() == 'C';
  const int64_t channels = c.shape[last ? c.shape.rank() - 1 : 1];
  const int64_t n = c.shape.num_elements();
  return last ? Reference{n / channels, channels, 1}
              : Reference{c.shape[0], channels, n / channels / c.shape[0]};
}

// Names of the op for `type`, which V3 alone has for images of five dimensions.
std::string named(std::string op, DType type, const Shape& shape) {
  if (shape.rank() == 5) return op + "V3";
  return type == DType::kFloat || type == DType::kDouble ? op : op + "V2";
}

bool has_kernel(DType type, const Shape& shape) {
  return type != DType::kDouble || shape.rank() == 4;
}

class BatchNorm : public testing::Test {
 protected:
  Tensor random(DType type, const Shape& shape) { return random_tensor(type, shape, random_); }
  // A vector of channels in the type of statistics, from 0.25 on where `positive`.
  Tensor vector(DType type, int64_t channels, bool positive = false) {
    Doubles values = doubles_of(random(type, Shape{channels}));
    if (positive) {
      for (double& v : values) v = std::abs(v) + 0.25;
    }
    return tensor_of(type == DType::kDouble ? type : DType::kFloat, Shape{channels}, values);
  }
  static OpTester& with_attrs(OpTester& op, const Case& c, bool training) {
    op.attr("data_format", c.format).attr("is_training", training);
    return op.attr("epsilon", static_cast<float>(kEpsilon));
  }
  std::mt19937 random_{11};
};

TEST_F(BatchNorm, NormalisesByItsOwnStatistics) {
  for (const Case& c : kCases) {
    for (DType type : kFloatingTypes) {
      if (!has_kernel(type, c.shape)) continue;
      for (float factor : {1.0F, 0.25F}) {
        SCOPED_TRACE(str_cat(c.shape, " ", c.format, " ", type, " ", factor));
        const Reference r = reference_of(c);
        const Tensor x = random(type, c.shape), scale = vector(type, r.channels);
        const Tensor offset = vector(type, r.channels), mean = vector(type, r.channels);
        const Tensor variance = vector(type, r.channels, true);
        OpTester op(named("FusedBatchNorm", type, c.shape));
        with_attrs(op, c, true)
            .attr("exponential_avg_factor", factor)
            .input(x)
            .input(scale)
            .input(offset);
        Result<std::vector<Tensor>> got = op.input(mean).input(variance).run();
        ASSERT_TRUE(got.ok()) << got.status().to_string();
        const Doubles xs = doubles_of(x);
        Doubles y(xs.size()), moving_mean, moving_variance, means, variances;
        for (int64_t k = 0; k < r.channels; ++k) {
          const auto i = static_cast<size_t>(k);
          means.push_back(r.mean(xs, k));
          variances.push_back(r.variance(xs, k));
          const double unbiased = variances[i] * r.count() / std::max(r.count() - 1, 1.0);
          moving_mean.push_back(means[i] * factor + doubles_of(mean)[i] * (1 - factor));
          moving_variance.push_back(unbiased * factor + doubles_of(variance)[i] * (1 - factor));
          const double slope = doubles_of(scale)[i] / std::sqrt(variances[i] + kEpsilon);
          r.sum(k, [&](size_t at) {
            y[at] = (xs[at] - means[i]) * slope + doubles_of(offset)[i];
            return 0.0;
          });
        }
        expect_close((*got)[0], y, 64);
        expect_close((*got)[1], moving_mean, 32);
        expect_close((*got)[2], moving_variance, 32);
        expect_close((*got)[3], means, 32);
        expect_close((*got)[4], variances, 32);
      }
    }
  }
}

TEST_F(BatchNorm, NormalisesByGivenStatistics) {
  for (const Case& c : kCases) {
    for (DType type : kFloatingTypes) {
      if (!has_kernel(type, c.shape)) continue;
      SCOPED_TRACE(str_cat(c.shape, " ", c.format, " ", type));
      const Reference r = reference_of(c);
      const Tensor x = random(type, c.shape), scale = vector(type, r.channels);
      const Tensor offset = vector(type, r.channels), mean = vector(type, r.channels);
      const Tensor variance = vector(type, r.channels, true);
      OpTester op(named("FusedBatchNorm", type, c.shape));
      with_attrs(op, c, false).input(x).input(scale).input(offset).input(mean).input(variance);
      Result<std::vector<Tensor>> got = op.run();
      ASSERT_TRUE(got.ok()) << got.status().to_string();
      Doubles y = doubles_of(x);
      for (int64_t k = 0; k < r.channels; ++k) {
        const auto i = static_cast<size_t>(k);
        r.sum(k, [&](size_t at) {
          y[at] = (y[at] - doubles_of(mean)[i]) * doubles_of(scale)[i] /
                      std::sqrt(doubles_of(variance)[i] + kEpsilon) +
                  doubles_of(offset)[i];
          return 0.0;
        });
      }
      expect_close((*got)[0], y, 64);
      expect_close((*got)[1], doubles_of(mean));
      expect_close((*got)[4], doubles_of(variance));
    }
  }
}

TEST_F(BatchNorm, Gradient) {
  for (const Case& c : kCases) {
    for (DType type : kFloatingTypes) {
      if (!has_kernel(type, c.shape)) continue;
      for (bool training : {true, false}) {
        SCOPED_TRACE(str_cat(c.shape, " ", c.format, " ", type, training ? " training" : ""));
        const Reference r = reference_of(c);
        const Tensor dy = random(type, c.shape), x = random(type, c.shape);
        const Tensor scale = vector(type, r.channels), mean = vector(type, r.channels);
        const Tensor variance = vector(type, r.channels, true);
        OpTester op(named("FusedBatchNormGrad", type, c.shape));
        with_attrs(op, c, training).input(dy).input(x).input(scale).input(mean).input(variance);
        if (c.shape.rank() == 5) op.input(Tensor::scalar(0.0F));
        Result<std::vector<Tensor>> got = op.run();
        ASSERT_TRUE(got.ok()) << got.status().to_string();
        const Doubles dys = doubles_of(dy), xs = doubles_of(x);
        Doubles dx(xs.size()), dscale, doffset;
        for (int64_t k = 0; k < r.channels; ++k) {
          const auto i = static_cast<size_t>(k);
          const double m = doubles_of(mean)[i], spread = doubles_of(variance)[i] + kEpsilon;
          const double sum = r.sum(k, [&](size_t at) { return dys[at]; });
          const double product = r.sum(k, [&](size_t at) { return dys[at] * (xs[at] - m); });
          doffset.push_back(sum);
          dscale.push_back(product / std::sqrt(spread));
          const double n = training ? r.count() : std::numeric_limits<double>::infinity();
          r.sum(k, [&](size_t at) {
            dx[at] = doubles_of(scale)[i] / std::sqrt(spread) *
                     (dys[at] - sum / n - (xs[at] - m) * product / n / spread);
            return 0.0;
          });
        }
        expect_close((*got)[0], dx, 64);
        expect_close((*got)[1], dscale, 64);
        expect_close((*got)[2], doffset, 64);
      }
    }
  }
}

// Far from zero the squares of x would cancel.
TEST_F(BatchNorm, VarianceOfLargeNumbers) {
  Doubles values;
  for (int i = 0; i < 4000; ++i) values.push_back(100000 + (i % 2 == 0 ? 1 : -1));
  for (const char* format : {"NHWC", "NCHW"}) {
    OpTester op("FusedBatchNorm");
    op.attr("data_format", format).input(tensor_of(DType::kFloat, {4000, 1, 1, 1}, values));
    for (int i = 0; i < 2; ++i) op.input(Tensor::vector<float>({1}));
    for (int i = 0; i < 2; ++i) op.input(Tensor::zeros(DType::kFloat, {0}).value());
    expect_close((*op.run())[4], {1}, 16);
  }
}

TEST_F(BatchNorm, ThreadsDoNotChangeBits) {
  const Tensor x = random(DType::kFloat, {8, 30, 30, 24});
  const Tensor ones = vector(DType::kFloat, 24);
  const auto run = [&](int threads) {
    OpTester op("FusedBatchNorm");
    op.threads(threads).input(x);
    for (int i = 0; i < 4; ++i) op.input(ones);
    return op.run().value();
  };
  const std::vector<Tensor> one = run(1), four = run(4);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(bit_equal(one[i], four[i]));
}

TEST_F(BatchNorm, NothingToNormalise) {
  OpTester op("FusedBatchNorm");
  op.input(Tensor::zeros(DType::kFloat, {0, 3, 3, 2}).value());
  for (int i = 0; i < 4; ++i) op.input(Tensor::zeros(DType::kFloat, {2}).value());
  Result<std::vector<Tensor>> got = op.run();
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ((*got)[0].shape(), Shape({0, 3, 3, 2}));
  EXPECT_TRUE(std::isnan((*got)[1].data<float>()[0]));
}

TEST_F(BatchNorm, BadInputs) {
  const auto error = [](const Shape& x, int64_t scale, int64_t mean, bool training) {
    OpTester op("FusedBatchNorm");
    op.attr("is_training", training).input(Tensor::zeros(DType::kFloat, x).value());
    for (int64_t n : {scale, scale, mean, mean}) {
      op.input(Tensor::zeros(DType::kFloat, Shape{n}).value());
    }
    return error_of(op);
  };
  EXPECT_HAS(error({2, 2, 3}, 3, 3, true), "rank 4");
  EXPECT_HAS(error({2, 2, 2, 3}, 2, 3, true), "INVALID_ARGUMENT");
  EXPECT_HAS(error({2, 2, 2, 3}, 3, 0, false), "INVALID_ARGUMENT");
  EXPECT_EQ(error({2, 2, 2, 3}, 3, 0, true), "ok");
}

TEST_F(BatchNorm, Shapes) {
  const OpRegistry& ops = OpRegistry::global();
  EXPECT_EQ(*infer_shapes(ops, "FusedBatchNorm", {}, "[?,7,7,?];[?];[3];?;?"),
            "[?,7,7,3];[3];[3];[3];[3]");
  EXPECT_EQ(*infer_shapes(ops, "FusedBatchNorm", {{"data_format", "NCHW"}}, "[?,4,7,?];?;?;?;?"),
            "[?,4,7,?];[4];[4];[4];[4]");
  EXPECT_FALSE(infer_shapes(ops, "FusedBatchNorm", {}, "[?,7,7,2];[?];[3];?;?").ok());
  EXPECT_EQ(*infer_shapes(ops, "FusedBatchNormGrad", {}, "[5,?,7,?];[?,7,7,?];[3];?;?"),
            "[5,7,7,3];[3];[3];[0];[0]");
}

TEST_F(BatchNorm, WithGlobalNormalization) {
  for (DType type : kFloatingTypes) {
    for (bool scales : {false, true}) {
      const Tensor t = random(type, {2, 1, 2, 3}), dy = random(type, {2, 1, 2, 3});
      const auto channels = [&](const Doubles& values) { return tensor_of(type, {3}, values); };
      const Doubles m = {0.5, -1, 2}, v = {1, 0.5, 3}, beta = {1, 2, 3}, gamma = {2, -1, 0.5};
      const Doubles x = doubles_of(t), g = doubles_of(dy);
      Doubles y(12), dx(12), dm(3), dv(3), db(3), dg(3);
      for (size_t i = 0; i < 12; ++i) {
        const size_t c = i % 3;
        const double r = 1 / std::sqrt(v[c] + kEpsilon), s = scales ? gamma[c] : 1;
        y[i] = (x[i] - m[c]) * r * s + beta[c];
        dx[i] = g[i] * r * s;
        dm[c] -= g[i] * r * s;
        dv[c] -= g[i] * (x[i] - m[c]) * r * r * r * s / 2;
        db[c] += g[i];
        dg[c] += scales ? g[i] * (x[i] - m[c]) * r : 0;
      }
      const auto with_attrs = [&](OpTester& op) -> OpTester& {
        return op.attr("variance_epsilon", static_cast<float>(kEpsilon))
            .attr("scale_after_normalization", scales);
      };
      OpTester forward("BatchNormWithGlobalNormalization");
      with_attrs(forward).input(t).input(channels(m)).input(channels(v));
      expect_close(*forward.input(channels(beta)).input(channels(gamma)).run_one(), y, 16);
      OpTester backward("BatchNormWithGlobalNormalizationGrad");
      with_attrs(backward).input(t).input(channels(m)).input(channels(v));
      std::vector<Tensor> got = backward.input(channels(gamma)).input(dy).run().value();
      const Doubles* const wanted[] = {&dx, &dm, &dv, &db, &dg};
      for (size_t i = 0; i < 5; ++i) expect_close(got[i], *wanted[i], 32);
    }
  }
}

}  // namespace
}  // namespace millrace
