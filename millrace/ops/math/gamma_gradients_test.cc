#include <gtest/gtest.h>

#include <cmath>

#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/math/special_functions.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_math_ops});

// TensorFlow's values, in double.
const struct {
  double a, x, by_a, sample_by_a;
} kKnown[] = {
    {0.001, 0.001, -6.293203824900426, 6.339511118616953},
    {0.001, 0.004, -4.925440305669096, 19.878785369212157},
    {0.05, 0.03, -2.6131720212715814, 1.8742601892594661},
    {0.05, 0.085, -1.84786946290583, 3.7661893713615777},
    {0.3, 0.03, -1.2966602890659793, 0.3433514973874913},
    {0.3, 0.3, -0.8777730370516976, 1.5259998172197702},
    {0.3, 1.2, -0.26114603982624496, 2.946881804798938},
    {1.0, 0.6, -0.49081513028534896, 0.8943234764090512},
    {1.0, 1.7, -0.27703947506988363, 1.516499511964262},
    {2.5, 0.25, -0.01977384482563034, 0.270016888813399},
    {2.5, 2.5, -0.2608449623686695, 1.0686730199876306},
    {2.5, 10.0, -0.0021281869603254574, 1.9705651443540755},
    {10.0, 6.0, -0.05362394952930226, 0.7789820824405993},
    {10.0, 17.0, -0.017725921262602706, 1.3102004633764388},
    {100.0, 10.0, -1.2463513810630172e-62, 0.25620580938445775},
    {100.0, 100.0, -0.039927497857784724, 1.0016683237741728},
    {100.0, 400.0, -1.526222515931576e-72, 1.851292879917621},
};

TEST(GammaGradients, AreTensorFlows) {
  for (const auto& row : kKnown) {
    const auto run = [&](const char* op) {
      return OpTester(op)
          .input(Tensor::scalar(row.a))
          .input(Tensor::scalar(row.x))
          .run_one()
          .value()
          .item<double>();
    };
    EXPECT_NEAR(run("IgammaGradA") / row.by_a, 1, 1e-8) << row.a << ", " << row.x;
    EXPECT_NEAR(run("RandomGammaGrad") / row.sample_by_a, 1, 1e-8) << row.a << ", " << row.x;
  }
}

// What is drawn moves with its quantile: lower_gamma(a, x) stays when a and x move together.
TEST(GammaGradients, KeepTheQuantile) {
  for (const double a : {0.02, 0.7, 3.0, 50.0, 2e3, 9e5, 2e6}) {
    for (const double sigmas : {-2.0, -0.5, 0.0, 1.0, 3.0}) {
      const double x =
          a * std::pow(std::max(1 - 1 / (9 * a) + sigmas / (3 * std::sqrt(a)), 0.2), 3);
      const double step = a * 1e-4;
      const double moved = gamma_sample_by_a(a, x) * step;
      const double before = lower_gamma(a - step, x - moved),
                   after = lower_gamma(a + step, x + moved);
      EXPECT_NEAR(before, after, 1e-6) << a << ", " << x;
    }
  }
}

TEST(GammaGradients, OfWhatIsNoSample) {
  for (auto f : {gamma_sample_by_a, lower_gamma_by_a}) {
    EXPECT_EQ(f(1, 0), 0);
    EXPECT_EQ(f(1, INFINITY), 0);
    for (const double a : {0.0, -1.0, double{NAN}, double{INFINITY}}) {
      EXPECT_TRUE(std::isnan(f(a, 1))) << a;
    }
    EXPECT_TRUE(std::isnan(f(1, -1)) && std::isnan(f(1, NAN)));
    EXPECT_TRUE(std::isfinite(f(1e300, 1e300)) && std::isfinite(f(1e-300, 1e-300)));
  }
}

TEST(GammaGradients, Broadcast) {
  const Tensor got = OpTester("RandomGammaGrad")
                         .input(Tensor::vector<float>({1, 2.5F}))
                         .input(make_tensor(DType::kFloat, {2, 1}, {0.6, 4}))
                         .run_one()
                         .value();
  ASSERT_EQ(got.shape(), Shape({2, 2}));
  EXPECT_NEAR(got.data<float>()[0], 0.894323476, 1e-6);
  EXPECT_NEAR(got.data<float>()[2], 2.169855676, 1e-6);
  EXPECT_EQ(*infer_shapes(OpRegistry::global(), "IgammaGradA", {}, "[2];[3,1]"), "[3,2]");
}

}  // namespace
}  // namespace millrace
