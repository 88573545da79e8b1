#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "millrace/graph/attr_value.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

class Expr;

// Makes operations: a graph adds nodes, an eager back end runs kernels. The first error sticks:
// status() has it, and every Expr made afterwards is invalid, so code that builds an expression
// needs no checks in between.
class OpBuilder {
 public:
  virtual ~OpBuilder() = default;
  // The outputs of a new operation `op`. Inputs are given flat, list arguments expanded; the values
  // of type and number attributes are worked out from them and need not be in `attrs`.
  virtual std::vector<Expr> emit(std::string_view op, std::vector<Expr> inputs, AttrMap attrs) = 0;
  // A constant with this value.
  virtual Expr constant(const Tensor& value) = 0;
  virtual DType dtype(Expr e) const = 0;
  // What is known of its shape.
  virtual PartialShape shape(Expr e) const = 0;
  // Its value where that is known before anything runs, in host memory; null otherwise. Good until
  // the next operation is made. For rules with a better form for some values; they must work
  // without it.
  virtual const Tensor* constant_value(Expr e) const;
  virtual const Status& status() const = 0;
  // Makes `error` the builder's status unless it has one.
  virtual void fail(Status error) = 0;
  // How many functions enclose what this builder makes. An operation on tensors of several builders
  // is the innermost one's.
  virtual int depth() const { return 0; }
};

// One tensor in the making: an output of an operation of some OpBuilder. A small value.
class Expr {
 public:
  Expr() = default;
  Expr(OpBuilder* builder, int64_t id, int index) : builder_(builder), id_(id), index_(index) {}

  bool valid() const { return builder_ != nullptr; }
  OpBuilder* builder() const { return builder_; }
  // What the builder knows it by: the node (or value) and its output number.
  int64_t id() const { return id_; }
  int index() const { return index_; }
  // kInvalid, and unknown, of an invalid one.
  DType dtype() const { return valid() ? builder_->dtype(*this) : DType::kInvalid; }
  PartialShape shape() const { return valid() ? builder_->shape(*this) : PartialShape(); }
  // Null of an invalid one.
  const Tensor* constant_value() const {
    return valid() ? builder_->constant_value(*this) : nullptr;
  }

 private:
  OpBuilder* builder_ = nullptr;
  int64_t id_ = -1;
  int index_ = 0;
};

// Any op by name, for those without a function below. One output:
Expr call(std::string_view op, std::initializer_list<Expr> inputs, AttrMap attrs = {});
Expr call(std::string_view op, const std::vector<Expr>& inputs, AttrMap attrs = {});
// All outputs (empty after an error):
std::vector<Expr> call_multi(std::string_view op, const std::vector<Expr>& inputs,
                             AttrMap attrs = {});

// A scalar constant of the dtype of `like`.
Expr constant_like(Expr like, double value);
Expr int32_vector(OpBuilder& builder, std::initializer_list<int32_t> values);
Expr int32_scalar(OpBuilder& builder, int32_t value);

Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator*(Expr a, Expr b);
Expr operator/(Expr a, Expr b);  // RealDiv
Expr operator-(Expr a);
Expr operator+(Expr a, double b);
Expr operator-(Expr a, double b);
Expr operator*(Expr a, double b);
Expr operator/(Expr a, double b);
Expr operator+(double a, Expr b);
Expr operator-(double a, Expr b);
Expr operator*(double a, Expr b);
Expr operator/(double a, Expr b);

// The ops that rules use most.
Expr abs(Expr x);
Expr cast(Expr x, DType to);
Expr concat(const std::vector<Expr>& values, int axis);
Expr cos(Expr x);
Expr equal(Expr a, Expr b);
Expr exp(Expr x);
Expr expand_dims(Expr x, Expr axis);
Expr fill(Expr shape, Expr value);
Expr greater(Expr a, Expr b);
Expr greater_equal(Expr a, Expr b);
Expr identity(Expr x);
Expr less(Expr a, Expr b);
Expr less_equal(Expr a, Expr b);
Expr log(Expr x);
Expr logical_and(Expr a, Expr b);
Expr matmul(Expr a, Expr b, bool transpose_a = false, bool transpose_b = false);
Expr ones_like(Expr x);
Expr pow(Expr a, Expr b);
Expr range(Expr start, Expr limit, Expr delta);
Expr rank(Expr x);
Expr reciprocal(Expr x);
Expr reshape(Expr x, Expr shape);
Expr rsqrt(Expr x);
Expr select(Expr condition, Expr if_true, Expr if_false);
Expr shape_of(Expr x, DType out_type = DType::kInt32);
Expr sign(Expr x);
Expr sin(Expr x);
Expr size_of(Expr x, DType out_type = DType::kInt32);
Expr sqrt(Expr x);
Expr square(Expr x);
Expr sum(Expr x, Expr axes, bool keep_dims = false);
Expr tanh(Expr x);
Expr tile(Expr x, Expr multiples);
Expr transpose(Expr x, Expr permutation);
Expr zeros_like(Expr x);

// `gradient` (of the shape of `result`, a broadcast of `input` with others) summed back to the
// shape of `input`.
Expr sum_to_shape_of(Expr gradient, Expr input);
// Both at once, for a binary op: gradients ga, gb of z = f(a, b) summed back to the shapes of a and
// b.
struct ExprPair {
  Expr first, second;
};
ExprPair unbroadcast(Expr ga, Expr gb, Expr a, Expr b);

}  // namespace millrace
