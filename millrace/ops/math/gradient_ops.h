#pragma once

#include "millrace/ops/math/unary_ops.h"

// The fused backward ops of unary_ops.h: entries as in binary_ops.h, both inputs of one shape.

namespace millrace {
inline namespace MR_ISA_NAMESPACE {

// One formula, one line.
// clang-format off
// From the result y and its gradient dy.
struct InvGrad {
  static constexpr OpInfo info =
      OpInfo{"InvGrad", kFloatingOrComplex, "-dy * y * y: backward of Inv."}
          .arguments("y", "dy", "z")
          .same_shape()
          .deprecated(17, "Use ReciprocalGrad");
  template <class T> MR_DEVICE_FN static T eval(T y, T dy) { return -dy * (y * y); }
  static ExprPair grad(Expr y, Expr dy, Expr, Expr g) {
    return {-2.0 * g * dy * y, call("ReciprocalGrad", {y, g})};
  }
};
struct ReciprocalGrad {
  static constexpr OpInfo info =
      OpInfo{"ReciprocalGrad", kFloatingOrComplex, "-dy * y * y: backward of Reciprocal."}
          .arguments("y", "dy", "z")
          .same_shape();
  template <class T> MR_DEVICE_FN static T eval(T y, T dy) { return -dy * (y * y); }
  static ExprPair grad(Expr y, Expr dy, Expr, Expr g) {
    return {-2.0 * g * dy * y, call("ReciprocalGrad", {y, g})};
  }
};
struct RsqrtGrad {
  static constexpr OpInfo info =
      OpInfo{"RsqrtGrad", kFloatingOrComplex, "-dy * y^3 / 2: backward of Rsqrt."}
          .arguments("y", "dy", "z")
          .same_shape();
  template <class T>
  MR_DEVICE_FN static T eval(T y, T dy) {
    return vec::lit<T>(-0.5) * (dy * y) * (y * y);
  }
  static ExprPair grad(Expr y, Expr dy, Expr, Expr g) {
    return {-1.5 * g * dy * square(y), call("RsqrtGrad", {y, g})};
  }
};
struct SigmoidGrad {
  static constexpr OpInfo info =
      OpInfo{"SigmoidGrad", kFloatingOrComplex, "dy * y * (1 - y): backward of Sigmoid."}
          .arguments("y", "dy", "z")
          .same_shape();
  template <class T> MR_DEVICE_FN static T eval(T y, T dy) { return dy * y * (vec::lit<T>(1) - y); }
  static ExprPair grad(Expr y, Expr dy, Expr, Expr g) {
    return {g * dy * (1.0 - 2.0 * y), call("SigmoidGrad", {y, g})};
  }
};
struct SqrtGrad {
  static constexpr OpInfo info =
      OpInfo{"SqrtGrad", kFloatingOrComplex, "dy / (2 * y): backward of Sqrt."}
          .arguments("y", "dy", "z")
          .same_shape()
          .costs(0.4F);
  template <class T> MR_DEVICE_FN static T eval(T y, T dy) { return vec::lit<T>(0.5) * dy / y; }
  static ExprPair grad(Expr y, Expr, Expr z, Expr g) {
    const Expr ratio = g / y;
    return {-(ratio * z), 0.5 * ratio};
  }
};
struct TanhGrad {
  static constexpr OpInfo info =
      OpInfo{"TanhGrad", kFloatingOrComplex, "dy * (1 - y * y): backward of Tanh."}
          .arguments("y", "dy", "z")
          .same_shape();
  template <class T> MR_DEVICE_FN static T eval(T y, T dy) { return dy * (vec::lit<T>(1) - y * y); }
  static ExprPair grad(Expr y, Expr dy, Expr, Expr g) {
    return {-2.0 * g * dy * y, call("TanhGrad", {y, g})};
  }
};

// From the gradient and the features (which may be the activations: the tests give the same
// answer).
struct ReluGrad {
  static constexpr OpInfo info =
      OpInfo{"ReluGrad", kRealNumbers, "gradients where features > 0, else 0: backward of Relu."}
          .arguments("gradients", "features", "backprops")
          .same_shape();
  template <class T> MR_DEVICE_FN static T eval(T g, T f) { return f > T{} ? g : T{}; }
  static ExprPair grad(Expr, Expr f, Expr, Expr g) {
    return {call("ReluGrad", {g, f}), zeros_like(f)};
  }
};
struct Relu6Grad {
  static constexpr OpInfo info =
      OpInfo{"Relu6Grad", kRealNumbers,
             "gradients where 0 < features < 6, else 0: backward of Relu6."}
          .arguments("gradients", "features", "backprops")
          .same_shape();
  template <class T>
  MR_DEVICE_FN static T eval(T g, T f) {
    const T below = f < vec::lit<T>(6) ? g : T{};
    return f > T{} ? below : T{};
  }
  static ExprPair grad(Expr, Expr f, Expr, Expr g) {
    return {call("Relu6Grad", {g, f}), zeros_like(f)};
  }
};
struct SoftplusGrad {
  static constexpr OpInfo info = OpInfo{"SoftplusGrad", kRealNumbers,
                                        "gradients / (1 + exp(-features)): backward of Softplus."}
                                     .arguments("gradients", "features", "backprops")
                                     .same_shape()
                                     .computed_for(kFloating)
                                     .costs(0.8F);
  template <class T> MR_DEVICE_FN static T eval(T g, T f) { return g * vec::sigmoid(f); }
  static ExprPair grad(Expr dy, Expr f, Expr, Expr g) {
    return {call("SoftplusGrad", {g, f}), call("SigmoidGrad", {call("Sigmoid", {f}), g * dy})};
  }
};
struct SoftsignGrad {
  static constexpr OpInfo info =
      OpInfo{"SoftsignGrad", kRealNumbers, "gradients / (1 + |features|)^2: backward of Softsign."}
          .arguments("gradients", "features", "backprops")
          .same_shape()
          .computed_for(kFloating)
          .costs(0.4F);
  template <class T>
  MR_DEVICE_FN static T eval(T g, T f) {
    const T d = vec::lit<T>(1) + vec::abs(f);
    return g / (d * d);
  }
  static ExprPair grad(Expr dy, Expr f, Expr, Expr g) {
    const Expr d = 1.0 + abs(f);
    return {call("SoftsignGrad", {g, f}), -2.0 * g * dy * sign(f) / (d * d * d)};
  }
};

// From the gradient and the activations.
struct EluGrad {
  static constexpr OpInfo info =
      OpInfo{"EluGrad", kRealNumbers, "gradients * (outputs + 1 where negative): backward of Elu."}
          .arguments("gradients", "outputs", "backprops")
          .same_shape()
          .computed_for(kFloating);
  template <class T>
  MR_DEVICE_FN static T eval(T g, T y) {
    return y < T{} ? g * (y + vec::lit<T>(1)) : g;
  }
  static ExprPair grad(Expr dy, Expr y, Expr, Expr g) {
    const Expr zeros = zeros_like(y);
    return {call("EluGrad", {g, y}), select(less(y, zeros), g * dy, zeros)};
  }
};
struct SeluGrad {
  static constexpr OpInfo info =
      OpInfo{"SeluGrad", kFloating,
             "gradients * (outputs + scale * alpha where negative, else scale): backward of Selu."}
          .arguments("gradients", "outputs", "backprops")
          .same_shape();
  template <class T>
  MR_DEVICE_FN static T eval(T g, T y) {
    return g * (y < T{} ? y + vec::lit<T>(kSeluScaleAlpha) : vec::lit<T>(kSeluScale));
  }
  static ExprPair grad(Expr dy, Expr y, Expr, Expr g) {
    const Expr zeros = zeros_like(y);
    return {call("SeluGrad", {g, y}), select(less(y, zeros), g * dy, zeros)};
  }
};
// clang-format on

using GradientOps = OpList<EluGrad, InvGrad, ReciprocalGrad, Relu6Grad, ReluGrad, RsqrtGrad,
                           SeluGrad, SigmoidGrad, SoftplusGrad, SoftsignGrad, SqrtGrad, TanhGrad>;

}  // namespace MR_ISA_NAMESPACE
}  // namespace millrace
