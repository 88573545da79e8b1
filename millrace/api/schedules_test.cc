#include "millrace/api/schedules.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "millrace/api/client_session.h"
#include "millrace/api/ops.h"

namespace millrace {
namespace {

void expect_schedule(const std::function<Expr(const Scope&, Expr)>& build,
                     const std::function<double(double)>& formula) {
  for (DType dtype : {DType::kInt32, DType::kInt64, DType::kFloat}) {
    Scope root = Scope::make_root();
    Expr given = ops::placeholder(root, DType::kInt64, {.shape = PartialShape::scalar()});
    Expr rate = build(root, ops::cast(root, given, dtype));
    auto session = ClientSession::create(root);
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    for (int64_t step : {0, 1, 5, 9, 10, 11, 15, 20, 25, 37, 1000}) {
      Tensor got = session->run({{given, Tensor::scalar(step)}}, {rate}).value()[0];
      double wanted = formula(static_cast<double>(step));
      EXPECT_NEAR(got.item<float>(), wanted, 1e-7 + 1e-6 * std::abs(wanted)) << "step " << step;
    }
  }
}

TEST(Schedules, DecayExponentially) {
  expect_schedule([](const Scope& s, Expr t) { return exponential_decay(s, 0.5, t, 10, 0.9); },
                  [](double t) { return 0.5 * std::pow(0.9, t / 10); });
  expect_schedule(
      [](const Scope& s, Expr t) { return exponential_decay(s, 0.5, t, 10, 0.9, true); },
      [](double t) { return 0.5 * std::pow(0.9, std::floor(t / 10)); });
  expect_schedule([](const Scope& s, Expr t) { return natural_exp_decay(s, 0.5, t, 10, 0.9); },
                  [](double t) { return 0.5 * std::exp(-0.9 * t / 10); });
}

TEST(Schedules, DecayWithInverseTime) {
  expect_schedule([](const Scope& s, Expr t) { return inverse_time_decay(s, 0.5, t, 10, 0.9); },
                  [](double t) { return 0.5 / (1 + 0.9 * t / 10); });
  expect_schedule(
      [](const Scope& s, Expr t) { return inverse_time_decay(s, 0.5, t, 10, 0.9, true); },
      [](double t) { return 0.5 / (1 + 0.9 * std::floor(t / 10)); });
}

TEST(Schedules, DecayAsAPolynomial) {
  expect_schedule(
      [](const Scope& s, Expr t) {
        return polynomial_decay(s, 0.5, t, 10, {.end_rate = 0.1, .power = 2});
      },
      [](double t) { return 0.4 * std::pow(1 - std::min(t, 10.0) / 10, 2) + 0.1; });
  expect_schedule(
      [](const Scope& s, Expr t) {
        return polynomial_decay(s, 0.5, t, 10, {.end_rate = 0.1, .power = 2, .cycle = true});
      },
      [](double t) {
        double period = 10 * std::max(std::ceil(t / 10), 1.0);
        return 0.4 * std::pow(1 - t / period, 2) + 0.1;
      });
}

TEST(Schedules, StepDown) {
  expect_schedule(
      [](const Scope& s, Expr t) { return piecewise_constant(s, t, {5, 20}, {1, 0.5, 0.1}); },
      [](double t) { return t <= 5    ? 1
                            : t <= 20 ? 0.5
                                      : 0.1; });
  expect_schedule([](const Scope& s, Expr t) { return piecewise_constant(s, t, {}, {0.25}); },
                  [](double) { return 0.25; });
}

TEST(Schedules, FollowACosine) {
  expect_schedule([](const Scope& s, Expr t) { return cosine_decay(s, 0.5, t, 20, 0.1); },
                  [](double t) {
                    double wave = (1 + std::cos(std::numbers::pi * std::min(t, 20.0) / 20)) / 2;
                    return 0.5 * (0.9 * wave + 0.1);
                  });
}

TEST(Schedules, WarmUp) {
  expect_schedule([](const Scope& s, Expr t) { return warmup(s, s.constant(0.5F), t, 10); },
                  [](double t) { return 0.5 * std::min((t + 1) / 10, 1.0); });
}

TEST(Schedules, RefuseWhatHasNoMeaning) {
  auto code = [](const std::function<Expr(const Scope&, Expr)>& build) {
    Scope root = Scope::make_root();
    EXPECT_FALSE(build(root, root.constant(int64_t{0})).valid());
    EXPECT_NE(root.status().to_string().find("schedules_test.cc"), std::string::npos);
    return root.status().code();
  };
  EXPECT_EQ(code([](const Scope& s, Expr t) { return cosine_decay(s, 1, t, 0); }),
            Code::kInvalidArgument);
  EXPECT_EQ(
      code([](const Scope& s, Expr t) { return piecewise_constant(s, t, {2, 1}, {1, 2, 3}); }),
      Code::kInvalidArgument);
  EXPECT_EQ(code([](const Scope& s, Expr t) { return piecewise_constant(s, t, {1}, {1}); }),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
