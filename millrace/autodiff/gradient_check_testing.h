#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/api/client_session.h"
#include "millrace/tensor/complex.h"

// Compares gradients with differences of values.

namespace millrace {

// A computation to differentiate, and the point to do it at.
struct Program {
  struct Tensors {
    std::vector<Expr> xs;  // by point: what to differentiate by; invalid: nothing
    std::vector<Expr> ys;  // real and complex tensors count, others are left out
  };
  std::string name = {};
  std::vector<Tensor> points = {};
  // Gets one tensor for each point.
  std::function<Tensors(const Scope&, const std::vector<Expr>&)> build = {};
};

// The gradient of L = sum(w * y), and that of S = sum(v * dL/dx) with respect to x and w, for
// random w and v. Of complex numbers the real part is summed. Errors name the program, the tensor
// and the element, with both values.
class GradientCheck {
 public:
  // Whether the shapes of all tensors are known when the rules run, and the values of integers.
  enum class Facts { kKnown, kUnknown };

  // Builds and runs the program; what it answers is the error.
  static Result<std::unique_ptr<GradientCheck>> create(const Program& program, Facts facts);
  // The ys at the point.
  const std::vector<Tensor>& values() const { return values_; }
  bool finite() const;

  // Adds the gradients to the graph and computes them at the point.
  Status differentiate();
  // Against central differences, both orders. For points around which the program is smooth.
  Status check_differences();
  // Where both one-sided derivatives exist, the gradient lies between them, in both orders.
  Status check_one_sided();
  // The gradients have the shapes of what they are gradients of.
  Status check_shapes();

  const Graph& graph() const { return *root_.graph(); }

 private:
  GradientCheck(const Program& program, Facts facts);
  Status build();
  Expr feed(const Tensor& value);
  Expr weighted(Expr y, const Tensor& value, uint64_t seed);
  // L and S with component `part` of element `element` of feed `feed` moved by `step`.
  struct Sums {
    double first = 0, second = 0;
  };
  Result<Sums> sums_at(size_t feed, size_t element, bool imaginary, double step);
  // Calls `check` for every number that can be moved.
  Status for_each_component(
      size_t num_feeds,
      const std::function<Status(size_t feed, size_t element, bool imaginary)>& f);
  std::string place(int order, size_t feed, size_t element, bool imaginary) const;

  const Program& program_;
  const Facts facts_;
  Scope root_;
  std::unique_ptr<ClientSession> session_;
  Program::Tensors tensors_;
  std::vector<Expr> fed_;  // points, then weights w, then v
  std::vector<Tensor> feed_values_;
  std::vector<Tensor> values_;
  size_t num_weights_ = 0;
  Expr first_sum_, second_sum_;
  std::vector<Tensor> first_, second_;  // by feed: gradients of the sums; invalid: none
  std::shared_ptr<Callable> sums_;      // made when first asked for
  bool single_precision_ = false;
};

// `count` different numbers in [low, high), at least 1/128 from each other and from multiples of
// 1/32.
std::vector<double> spread_numbers(size_t count, double low, double high, uint64_t seed);

}  // namespace millrace
