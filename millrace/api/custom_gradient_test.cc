#include "millrace/api/custom_gradient.h"

#include <gtest/gtest.h>

#include <cmath>

#include "millrace/api/client_session.h"
#include "millrace/api/control_flow.h"
#include "millrace/api/ops.h"
#include "millrace/autodiff/gradients.h"

namespace millrace {
namespace {

using Exprs = std::vector<Expr>;

// log(1 + e^x) overflows for large x, and so does the gradient that follows from its operations.
Expr softplus(const Scope& scope, Expr x) {
  Exprs y = custom_gradient(
      scope, {x},
      [](const Scope& s, const Exprs& in) { return Exprs{ops::log1p(s, ops::exp(s, in[0]))}; },
      [](const Scope& s, const CustomGradientArgs& g) {
        return Exprs{g.gradients[0] * ops::sigmoid(s, g.inputs[0])};
      });
  return y.empty() ? Expr() : y[0];
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST(CustomGradient, TakesThePlaceOfTheDerivedOne) {
  Scope root = Scope::make_root();
  Expr x = ops::placeholder(root, DType::kDouble, {.shape = PartialShape({})});
  Expr y = softplus(root, x);
  auto first = gradients(root.builder(), std::span(&y, 1), std::span(&x, 1)).value();
  Expr dy = first[0].values;
  auto second = gradients(root.builder(), std::span(&dy, 1), std::span(&x, 1)).value();
  ClientSession session = ClientSession::create(root).value();
  for (double v : {-2.0, 0.5, 1000.0}) {
    auto out = session.run({{x, Tensor::scalar(v)}}, {dy, second[0].values}).value();
    double s = sigmoid(v);
    EXPECT_NEAR(out[0].item<double>(), s, 1e-12) << v;
    EXPECT_NEAR(out[1].item<double>(), s * (1 - s), 1e-12) << v;
  }
}

TEST(CustomGradient, InsideALoop) {
  Scope root = Scope::make_root();
  Expr x = ops::placeholder(root, DType::kDouble, {.shape = PartialShape({})});
  Exprs out = while_loop(
      root, {root.constant(int32_t{0}), x},
      [](const Scope& s, const Exprs& v) { return ops::less(s, v[0], s.constant(int32_t{3})); },
      [](const Scope& s, const Exprs& v) { return Exprs{v[0] + 1.0, softplus(s, v[1])}; });
  ASSERT_TRUE(root.ok()) << root.status().to_string();
  auto g = gradients(root.builder(), std::span(&out[1], 1), std::span(&x, 1));
  ASSERT_TRUE(g.ok()) << g.status().to_string();
  ClientSession session = ClientSession::create(root).value();
  auto got = session.run({{x, Tensor::scalar(0.3)}}, {(*g)[0].values}).value();
  double expected = 1, v = 0.3;
  for (int i = 0; i < 3; ++i) {
    expected *= sigmoid(v);
    v = std::log1p(std::exp(v));
  }
  EXPECT_NEAR(got[0].item<double>(), expected, 1e-12);
}

TEST(CustomGradient, MustCoverItsInputs) {
  Scope root = Scope::make_root();
  Expr x = root.constant(1.0);
  Exprs y = custom_gradient(
      root, {x}, [](const Scope& s, const Exprs& in) { return Exprs{ops::exp(s, in[0])}; },
      [](const Scope&, const CustomGradientArgs&) { return Exprs{}; });
  Status status = gradients(root.builder(), y, std::span(&x, 1)).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("each of 1 inputs, got 0"), std::string_view::npos)
      << status.to_string();
}

}  // namespace
}  // namespace millrace
