#include "millrace/autodiff/derivatives_testing.h"

#include <gtest/gtest.h>

#include <cmath>

#include "millrace/api/ops.h"
#include "millrace/autodiff/gradients.h"

namespace millrace {
namespace {

Expr total(const Scope& s, Expr x) {
  Expr flat = ops::reshape(s, x, s.constant(Tensor::vector<int32_t>({-1})));
  return ops::sum(s, flat, s.constant(int32_t{0}));
}

void expect_close(const Tensor& a, const Tensor& b, std::string_view what) {
  ASSERT_EQ(a.shape(), b.shape()) << what;
  for (size_t i = 0; i < a.data<double>().size(); ++i) {
    double x = a.data<double>()[i], y = b.data<double>()[i];
    EXPECT_NEAR(x, y, 1e-6 * std::max(1.0, std::abs(y))) << what << " element " << i;
  }
}

}  // namespace

Result<Derivatives> evaluate_derivatives(const std::vector<Tensor>& xs,
                                         const ScalarProgram& program, int order, bool recompute,
                                         const SessionOptions& session_options) {
  Scope root = Scope::make_root();
  ClientSession::Feeds feeds;
  Exprs fed;
  for (const Tensor& x : xs) {
    fed.push_back(ops::placeholder(root, x.dtype(), {.shape = x.shape()}));
    feeds.emplace_back(fed.back(), x);
  }
  Expr y = program(root, fed);
  MR_TRY(root.status());
  Exprs fetches = {total(root, y)};
  GradientOptions options;
  options.recompute = recompute;
  Expr target = fetches[0];
  for (int n = 0; n < order; ++n) {
    MR_TRY_ASSIGN(std::vector<Gradient> g,
                  gradients(root.builder(), std::span(&target, 1), fed, {}, options));
    Exprs squares;
    for (size_t i = 0; i < g.size(); ++i) {
      Expr dense = g[i].valid() ? to_dense(g[i]) : zeros_like(fed[i]);
      fetches.push_back(dense);
      squares.push_back(total(root, ops::square(root, dense)));
    }
    target = ops::add_n(root, squares);
    MR_TRY(root.status());
  }
  MR_TRY_ASSIGN(ClientSession session, ClientSession::create(root, session_options));
  Derivatives out;
  MR_TRY_ASSIGN(out.values, session.run(feeds, fetches));
  out.nodes = root.graph()->num_nodes();
  return out;
}

void expect_same_derivatives(const Derivatives& a, const Derivatives& b, std::string_view what) {
  ASSERT_EQ(a.values.size(), b.values.size()) << what;
  for (size_t i = 0; i < a.values.size(); ++i) {
    expect_close(a.values[i], b.values[i], str_cat(what, " value ", i));
  }
}

}  // namespace millrace
