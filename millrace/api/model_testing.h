#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "millrace/api/client_session.h"
#include "millrace/api/ops.h"
#include "millrace/api/variables.h"
#include "millrace/autodiff/gradients.h"

namespace millrace {

// Numbers that look random and are the same every time.
inline Tensor some_numbers(const Shape& shape, double seed = 1) {
  Tensor t = Tensor::zeros(DType::kDouble, shape).value();
  double x = seed;
  for (double& v : t.mutable_data<double>()) v = std::sin(x += 1.7 + seed);
  return t;
}

// A small network in double with its variables and inputs: runs it, sets weights, and compares
// gradients with differences.
class ModelTester {
 public:
  Scope root = Scope::make_root();
  Variables vars{root};

  // A placeholder that is fed `value`. `shape` says what is known when the network is built.
  Expr input(const Tensor& value, const PartialShape& shape) {
    Expr x = ops::placeholder(root, value.dtype(), {.shape = shape});
    feeds_.emplace_back(x, value);
    return x;
  }
  Expr input(const Tensor& value) { return input(value, value.shape()); }

  // Makes a session and the variables' first values. No operations may be added after it.
  void start() {
    for (Variable* v : vars.all()) {
      Expr value = ops::placeholder(root, v->dtype, {.shape = v->shape});
      setters_.push_back({v, value, v->assign(root, value), v->read(root)});
    }
    Operation initialize = vars.initialize();
    Result<ClientSession> made = ClientSession::create(root);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    session_ = std::make_unique<ClientSession>(std::move(made).value());
    ASSERT_TRUE(session_->run({}, {}, {initialize}).ok());
  }

  Tensor run(Expr fetch, const std::vector<Operation>& targets = {}) {
    auto out = session_->run(feeds_, {fetch}, targets);
    EXPECT_TRUE(out.ok()) << out.status().to_string();
    return out.ok() ? (*out)[0] : Tensor::scalar(0.0);
  }
  Status run(const Operation& target) { return session_->run(feeds_, {}, {target}).status(); }

  Tensor get(std::string_view variable) { return run(setter(variable).current); }
  void set(std::string_view variable, const Tensor& value) {
    const Setter& s = setter(variable);
    ASSERT_TRUE(session_->run({{s.value, value}}, {}, {s.assign}).ok());
  }

  // Gradients of a scalar with respect to all trainable variables and all double inputs against
  // central differences. Called before start(); what it returns, after.
  struct Check {
    Expr loss;
    std::vector<Expr> gradients;  // variables, then inputs; invalid where there is none
  };
  Check differentiate(Expr y) {
    // A sum with different weights: symmetries must not hide mistakes.
    Expr flat = ops::reshape(root, y, root.constant(Tensor::vector<int32_t>({-1})));
    Expr numbers =
        ops::range(root, root.constant(0.0), ops::cast(root, ops::size(root, flat), DType::kDouble),
                   root.constant(1.0));
    Expr loss = ops::sum(root, ops::mul(root, flat, ops::sin(root, numbers + 1.0)),
                         root.constant(int32_t{0}));
    std::vector<Expr> xs;
    for (Variable* v : vars.trainable()) xs.push_back(v->handle);
    for (const auto& [x, value] : feeds_) {
      if (value.dtype() == DType::kDouble) xs.push_back(x);
    }
    auto found = gradients(root.builder(), std::span<const Expr>(&loss, 1), xs);
    EXPECT_TRUE(found.ok()) << found.status().to_string();
    Check check = {loss, {}};
    if (found.ok()) {
      for (const Gradient& g : *found) check.gradients.push_back(to_dense(g));
    }
    return check;
  }
  void expect_gradients(const Check& check, double tolerance = 1e-7) {
    size_t next = 0;
    for (const Setter& s : setters_) {
      if (!s.variable->trainable) continue;
      ASSERT_LT(next, check.gradients.size());
      Expr gradient = check.gradients[next++];
      ASSERT_TRUE(gradient.valid()) << s.variable->name << " has no gradient";
      Tensor first = run(s.current), got = run(gradient);
      compare(got, first, s.variable->name, tolerance, [&](const Tensor& moved) {
        set(s.variable->name, moved);
        return run(check.loss).item<double>();
      });
      set(s.variable->name, first);
    }
    for (auto& feed : feeds_) {
      Tensor& value = feed.second;
      if (value.dtype() != DType::kDouble) continue;
      ASSERT_LT(next, check.gradients.size());
      Expr gradient = check.gradients[next++];
      ASSERT_TRUE(gradient.valid()) << "an input has no gradient";
      Tensor first = value, got = run(gradient);
      compare(got, first, "input", tolerance, [&](const Tensor& moved) {
        value = moved;
        return run(check.loss).item<double>();
      });
      value = first;
    }
  }

 private:
  struct Setter {
    Variable* variable;
    Expr value;
    Operation assign;
    Expr current;
  };
  const Setter& setter(std::string_view variable) {
    for (const Setter& s : setters_) {
      if (s.variable->name == variable) return s;
    }
    ADD_FAILURE() << "no variable " << variable;
    return setters_.front();
  }
  template <class F>
  static void compare(const Tensor& got, const Tensor& at, const std::string& what,
                      double tolerance, F loss_at) {
    constexpr double kStep = 1e-5;
    ASSERT_EQ(got.shape(), at.shape()) << what;
    for (size_t i = 0; i < at.data<double>().size(); ++i) {
      auto moved = [&](double by) {
        Tensor t = at.clone().value();
        t.mutable_data<double>()[i] += by;
        return loss_at(t);
      };
      double slope = (moved(kStep) - moved(-kStep)) / (2 * kStep);
      EXPECT_NEAR(got.data<double>()[i], slope, tolerance * std::max(1.0, std::abs(slope)))
          << what << " element " << i;
    }
  }

  ClientSession::Feeds feeds_;
  std::vector<Setter> setters_;
  std::unique_ptr<ClientSession> session_;
};

}  // namespace millrace
