// test-labels: threads
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "millrace/api/client_session.h"
#include "millrace/api/control_flow.h"
#include "millrace/api/ops.h"
#include "millrace/autodiff/gradients.h"

namespace millrace {
namespace {

using Exprs = std::vector<Expr>;

// Gradients widen loops that other threads are running.
TEST(WidenThreads, SessionsRunLoopsWhileGradientsWidenThem) {
  Scope root = Scope::make_root();
  Expr x = ops::placeholder(root.with_name("x"), DType::kDouble, {.shape = PartialShape({})});
  constexpr int kLoops = 8;
  Exprs loops;
  std::vector<std::string> names;
  for (int k = 0; k < kLoops; ++k) {
    Exprs out = while_loop(
        root, {root.constant(int32_t{0}), x},
        [](const Scope& s, const Exprs& v) { return ops::less(s, v[0], s.constant(int32_t{5})); },
        [&](const Scope& s, const Exprs& v) {
          return Exprs{v[0] + 1.0, cond(
                                       s, ops::greater(s, v[1], s.constant(0.5)),
                                       [&](const Scope& t) { return ops::sin(t, v[1]); },
                                       [&](const Scope&) { return v[1] * x; })};
        });
    loops.push_back(out[1]);
    names.push_back(root.name_of(out[1]));
  }
  ASSERT_TRUE(root.ok()) << root.status().to_string();
  std::unique_ptr<Session> session = Session::create(root.graph(), {}).value();
  std::vector<double> expected;
  for (const std::string& name : names) {
    auto out = session->run({{"x:0", Tensor::scalar(0.9)}}, {name}).value();
    expected.push_back(out[0].item<double>());
  }
  std::atomic<bool> done = false;
  std::vector<std::thread> runners;
  for (int t = 0; t < 3; ++t) {
    runners.emplace_back([&, t] {
      for (int n = 0; !done || n < 20; ++n) {
        size_t k = static_cast<size_t>(t + n) % kLoops;
        auto out = session->run({{"x:0", Tensor::scalar(0.9)}}, {names[k]});
        ASSERT_TRUE(out.ok()) << out.status().to_string();
        EXPECT_EQ((*out)[0].item<double>(), expected[k]);
      }
    });
  }
  std::vector<std::string> slopes;
  for (Expr y : loops) {
    auto first = gradients(root.builder(), std::span(&y, 1), std::span(&x, 1));
    ASSERT_TRUE(first.ok()) << first.status().to_string();
    Expr slope = (*first)[0].values;
    slopes.push_back(root.name_of(slope));
    auto second = gradients(root.builder(), std::span(&slope, 1), std::span(&x, 1));
    ASSERT_TRUE(second.ok()) << second.status().to_string();
  }
  done = true;
  for (std::thread& runner : runners) runner.join();
  double value = 0;
  for (size_t k = 0; k < slopes.size(); ++k) {
    auto out = session->run({{"x:0", Tensor::scalar(0.9)}}, {slopes[k]});
    ASSERT_TRUE(out.ok()) << out.status().to_string();
    if (k == 0) value = (*out)[0].item<double>();
    EXPECT_EQ((*out)[0].item<double>(), value);
  }
}

}  // namespace
}  // namespace millrace
