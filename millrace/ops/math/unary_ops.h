#pragma once

#include "millrace/graph/expr.h"
#include "millrace/ops/math/complex_math.h"
#include "millrace/ops/math/elementwise.h"
#include "millrace/ops/math/special_functions.h"
#include "millrace/ops/vector.h"
#include "millrace/tensor/complex.h"

// The table of ops y = f(x). An entry has
//
//   info   name, types and what else passes ask;
//   eval   the formula, for scalars and (but for predicates) vectors of float and double alike;
//   grad   dx from x, y and dy; of complex numbers x and y are the conjugates.
//
// unary.cc makes definition, rules and kernels of it.

namespace millrace {
inline namespace MR_ISA_NAMESPACE {

inline constexpr TypeSet kFloatingOrComplex = kFloating | kComplex;
inline constexpr TypeSet kSignedNumbers = kFloating | kSignedIntegers;

// One formula, one line.
// clang-format off
struct Abs {
  static constexpr OpInfo info{"Abs", kSignedNumbers, "The absolute value of x."};
  template <class T> MR_DEVICE_FN static T eval(T x) { return vec::abs(x); }
  static Expr grad(Expr x, Expr, Expr dy) { return dy * sign(x); }
};
struct Acos {
  static constexpr OpInfo info =
      OpInfo{"Acos", kSignedNumbers | kComplex, "The inverse cosine of x."}
          .computed_for(kFloating)
          .costs(0.8F);
  template <class T> MR_DEVICE_FN static T eval(T x) { return vec::acos(x); }
  static Expr grad(Expr x, Expr, Expr dy) { return -(dy * rsqrt(1.0 - square(x))); }
};
struct Asin {
  static constexpr OpInfo info = OpInfo{"Asin", kSignedNumbers | kComplex, "The inverse sine of x."}
                                     .computed_for(kFloating)
                                     .costs(0.8F);
  template <class T> MR_DEVICE_FN static T eval(T x) { return vec::asin(x); }
  static Expr grad(Expr x, Expr, Expr dy) { return dy * rsqrt(1.0 - square(x)); }
};
struct Atan {
  static constexpr OpInfo info =
      OpInfo{"Atan", kSignedNumbers | kComplex, "The inverse tangent of x."}
          .computed_for(kFloating)
          .costs(0.9F);
  template <class T> MR_DEVICE_FN static T eval(T x) { return vec::atan(x); }
  static Expr grad(Expr x, Expr, Expr dy) { return dy / (1.0 + square(x)); }
};
// y / x, and its limit 1/2 where x is 0.
inline Expr ratio_at_zero(Expr y, Expr x) {
  return select(equal(x, zeros_like(x)), ones_like(x) * 0.5, call("DivNoNan", {y, x}));
}
struct BesselI0 {
  static constexpr OpInfo info = OpInfo{"BesselI0", kFloating, "The modified Bessel function of the first kind of order 0."}.costs(40);
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    using E = vec::Element<T>;
    return vec::map(x, [](E e) { return static_cast<E>(bessel_i(0, e)); });
  }
  static Expr grad(Expr x, Expr, Expr dy) { return dy * (call("BesselI1", {x})); }
};
struct BesselI0e {
  static constexpr OpInfo info = OpInfo{"BesselI0e", kFloating, "exp(-|x|) times the modified Bessel function of order 0."}.costs(40);
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    using E = vec::Element<T>;
    return vec::map(x, [](E e) { return static_cast<E>(scaled_bessel(0, e)); });
  }
  static Expr grad(Expr x, Expr y, Expr dy) {
    return dy * (call("BesselI1e", {x}) - sign(x) * y);
  }
};
struct BesselI1 {
  static constexpr OpInfo info = OpInfo{"BesselI1", kFloating, "The modified Bessel function of the first kind of order 1."}.costs(40);
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    using E = vec::Element<T>;
    return vec::map(x, [](E e) { return static_cast<E>(bessel_i(1, e)); });
  }
  static Expr grad(Expr x, Expr y, Expr dy) { return dy * (call("BesselI0", {x}) - ratio_at_zero(y, x)); }
};
struct BesselI1e {
  static constexpr OpInfo info = OpInfo{"BesselI1e", kFloating, "exp(-|x|) times the modified Bessel function of order 1."}.costs(40);
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    using E = vec::Element<T>;
    return vec::map(x, [](E e) { return static_cast<E>(scaled_bessel(1, e)); });
  }
  static Expr grad(Expr x, Expr y, Expr dy) {
    return dy * (call("BesselI0e", {x}) - sign(x) * y - ratio_at_zero(y, x));
  }
};
struct BesselJ0 {
  static constexpr OpInfo info = OpInfo{"BesselJ0", kFloating, "The Bessel function of the first kind of order 0."}.costs(40);
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    using E = vec::Element<T>;
    return vec::map(x, [](E e) { return static_cast<E>(bessel_j(0, e)); });
  }
  static Expr grad(Expr x, Expr, Expr dy) { return dy * (-call("BesselJ1", {x})); }
};
struct BesselJ1 {
  static constexpr OpInfo info = OpInfo{"BesselJ1", kFloating, "The Bessel function of the first kind of order 1."}.costs(40);
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    using E = vec::Element<T>;
    return vec::map(x, [](E e) { return static_cast<E>(bessel_j(1, e)); });
  }
  static Expr grad(Expr x, Expr y, Expr dy) { return dy * (call("BesselJ0", {x}) - ratio_at_zero(y, x)); }
};
struct BesselK0 {
  static constexpr OpInfo info = OpInfo{"BesselK0", kFloating, "The modified Bessel function of the second kind of order 0."}.costs(60);
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    using E = vec::Element<T>;
    return vec::map(x, [](E e) { return static_cast<E>(std::exp(-static_cast<double>(e)) * scaled_bessel_k(0, e)); });
  }
  static Expr grad(Expr x, Expr, Expr dy) { return dy * (-call("BesselK1", {x})); }
};
struct BesselK0e {
  static constexpr OpInfo info = OpInfo{"BesselK0e", kFloating, "exp(x) times the modified Bessel function of the second kind of order 0."}.costs(60);
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    using E = vec::Element<T>;
    return vec::map(x, [](E e) { return static_cast<E>(scaled_bessel_k(0, e)); });
  }
  static Expr grad(Expr x, Expr y, Expr dy) { return dy * (y - call("BesselK1e", {x})); }
};
struct BesselK1 {
  static constexpr OpInfo info = OpInfo{"BesselK1", kFloating, "The modified Bessel function of the second kind of order 1."}.costs(60);
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    using E = vec::Element<T>;
    return vec::map(x, [](E e) { return static_cast<E>(std::exp(-static_cast<double>(e)) * scaled_bessel_k(1, e)); });
  }
  static Expr grad(Expr x, Expr y, Expr dy) { return dy * (-(call("BesselK0", {x}) + y / x)); }
};
struct BesselK1e {
  static constexpr OpInfo info = OpInfo{"BesselK1e", kFloating, "exp(x) times the modified Bessel function of the second kind of order 1."}.costs(60);
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    using E = vec::Element<T>;
    return vec::map(x, [](E e) { return static_cast<E>(scaled_bessel_k(1, e)); });
  }
  static Expr grad(Expr x, Expr y, Expr dy) { return dy * (y * (1.0 - reciprocal(x)) - call("BesselK0e", {x})); }
};
struct BesselY0 {
  static constexpr OpInfo info = OpInfo{"BesselY0", kFloating, "The Bessel function of the second kind of order 0."}.costs(60);
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    using E = vec::Element<T>;
    return vec::map(x, [](E e) { return static_cast<E>(bessel_y(0, e)); });
  }
  static Expr grad(Expr x, Expr, Expr dy) { return dy * (-call("BesselY1", {x})); }
};
struct BesselY1 {
  static constexpr OpInfo info = OpInfo{"BesselY1", kFloating, "The Bessel function of the second kind of order 1."}.costs(60);
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    using E = vec::Element<T>;
    return vec::map(x, [](E e) { return static_cast<E>(bessel_y(1, e)); });
  }
  static Expr grad(Expr x, Expr y, Expr dy) { return dy * (call("BesselY0", {x}) - y / x); }
};
struct Ceil {
  static constexpr OpInfo info =
      OpInfo{"Ceil", kFloating, "The smallest integer not below x."}.is_piecewise_constant();
  template <class T> MR_DEVICE_FN static T eval(T x) { return vec::ceil(x); }
};
struct Cos {
  static constexpr OpInfo info = OpInfo{"Cos", kFloatingOrComplex, "The cosine of x."}.costs(0.7F);
  template <class T> MR_DEVICE_FN static T eval(T x) { return vec::cos(x); }
  static Expr grad(Expr x, Expr, Expr dy) { return -(dy * sin(x)); }
};
struct Dawsn {
  static constexpr OpInfo info = OpInfo{"Dawsn", kFloating, "exp(-x^2) times the integral of exp(t^2) from 0 to x."}.costs(40);
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    using E = vec::Element<T>;
    return vec::map(x, [](E e) { return static_cast<E>(dawson(e)); });
  }
  static Expr grad(Expr x, Expr y, Expr dy) { return dy * (1.0 - 2.0 * (x * y)); }
};
struct Digamma {
  static constexpr OpInfo info =
      OpInfo{"Digamma", kFloating, "The derivative of log |gamma(x)|."}.costs(30);
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    using E = vec::Element<T>;
    return vec::map(x, [](E e) { return static_cast<E>(digamma(e)); });
  }
  static Expr grad(Expr x, Expr, Expr dy) {
    return dy * call("Polygamma", {constant_like(x, 1), x});
  }
};
struct Elu {
  static constexpr OpInfo info = OpInfo{"Elu", kRealNumbers, "x, or exp(x) - 1 where x < 0."}
                                     .arguments("features", "activations")
                                     .computed_for(kFloating)
                                     .costs(0.8F);
  template <class T> MR_DEVICE_FN static T eval(T x) { return x < T{} ? vec::expm1(x) : x; }
  static Expr grad(Expr, Expr y, Expr dy) { return call("EluGrad", {dy, y}); }
};
struct Erf {
  static constexpr OpInfo info = OpInfo{"Erf", kFloating, "The error function of x."}.costs(0.6F);
  template <class T> MR_DEVICE_FN static T eval(T x) { return vec::erf(x); }
  static Expr grad(Expr x, Expr, Expr dy) { return dy * 1.1283791670955126 * exp(-square(x)); }
};
struct Erfc {
  static constexpr OpInfo info = OpInfo{"Erfc", kFloating, "1 - erf(x)."}.costs(1.2F);
  template <class T> MR_DEVICE_FN static T eval(T x) { return vec::erfc(x); }
  static Expr grad(Expr x, Expr, Expr dy) { return dy * -1.1283791670955126 * exp(-square(x)); }
};
struct Erfinv {
  static constexpr OpInfo info = OpInfo{"Erfinv", kFloating, "The inverse of the error function."}.costs(60);
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    using E = vec::Element<T>;
    return vec::map(x, [](E e) { return static_cast<E>(inverse_erf(e)); });
  }
  static Expr grad(Expr, Expr y, Expr dy) { return dy * 0.8862269254527580 * exp(square(y)); }
};
struct Exp {
  static constexpr OpInfo info =
      OpInfo{"Exp", kFloatingOrComplex, "e to the power of x."}.costs(0.5F);
  template <class T> MR_DEVICE_FN static T eval(T x) { return vec::exp(x); }
  static Expr grad(Expr, Expr y, Expr dy) { return dy * y; }
};
struct Expint {
  static constexpr OpInfo info = OpInfo{"Expint", kFloating, "The integral of exp(t) / t up to x, x >= 0."}.costs(60);
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    using E = vec::Element<T>;
    return vec::map(x, [](E e) { return static_cast<E>(exponential_integral(e)); });
  }
  static Expr grad(Expr x, Expr, Expr dy) { return dy * (exp(x) / x); }
};
struct Expm1 {
  static constexpr OpInfo info =
      OpInfo{"Expm1", kFloatingOrComplex, "exp(x) - 1, accurate near zero."}.costs(0.6F);
  template <class T> MR_DEVICE_FN static T eval(T x) { return vec::expm1(x); }
  static Expr grad(Expr, Expr y, Expr dy) { return dy * (y + 1.0); }  // y + 1 is exp(x)
};
struct Floor {
  static constexpr OpInfo info =
      OpInfo{"Floor", kFloating, "The largest integer not above x."}.is_piecewise_constant();
  template <class T> MR_DEVICE_FN static T eval(T x) { return vec::floor(x); }
};
struct FresnelCos {
  static constexpr OpInfo info = OpInfo{"FresnelCos", kFloating, "The integral of cos(pi t^2 / 2) from 0 to x."}.costs(80);
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    using E = vec::Element<T>;
    return vec::map(x, [](E e) { return static_cast<E>(fresnel_cosine(e)); });
  }
  static Expr grad(Expr x, Expr, Expr dy) { return dy * (cos(1.5707963267948966 * square(x))); }
};
struct FresnelSin {
  static constexpr OpInfo info = OpInfo{"FresnelSin", kFloating, "The integral of sin(pi t^2 / 2) from 0 to x."}.costs(80);
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    using E = vec::Element<T>;
    return vec::map(x, [](E e) { return static_cast<E>(fresnel_sine(e)); });
  }
  static Expr grad(Expr x, Expr, Expr dy) { return dy * (sin(1.5707963267948966 * square(x))); }
};
struct Invert {
  static constexpr OpInfo info = OpInfo{"Invert", kIntegers, "x with every bit the other way."}.is_piecewise_constant();
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    using E = vec::Element<T>;
    return vec::map(x, [](E e) { return static_cast<E>(~e); });
  }
};
struct IsFinite {
  static constexpr OpInfo info =
      OpInfo{"IsFinite", kFloating, "Whether x is neither infinite nor NaN."}.is_predicate();
  template <class T> MR_DEVICE_FN static bool eval(T x) { return x - x == 0; }
};
struct IsInf {
  static constexpr OpInfo info =
      OpInfo{"IsInf", kFloating, "Whether x is positive or negative infinity."}.is_predicate();
  template <class T> MR_DEVICE_FN static bool eval(T x) { return x == x && x - x != 0; }
};
struct IsNan {
  static constexpr OpInfo info = OpInfo{"IsNan", kFloating, "Whether x is NaN."}.is_predicate();
  template <class T> MR_DEVICE_FN static bool eval(T x) { return x != x; }
};
struct Lgamma {
  static constexpr OpInfo info =
      OpInfo{"Lgamma", kFloating, "The logarithm of |gamma(x)|."}.costs(20);
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    using E = vec::Element<T>;
    return vec::map(x, [](E e) { return static_cast<E>(log_gamma(e)); });
  }
  static Expr grad(Expr x, Expr, Expr dy) { return dy * call("Digamma", {x}); }
};
struct Log {
  static constexpr OpInfo info =
      OpInfo{"Log", kFloatingOrComplex, "The natural logarithm of x."}.costs(0.6F);
  template <class T> MR_DEVICE_FN static T eval(T x) { return vec::log(x); }
  static Expr grad(Expr x, Expr, Expr dy) { return dy * reciprocal(x); }
};
struct Log1p {
  static constexpr OpInfo info =
      OpInfo{"Log1p", kFloatingOrComplex, "log(1 + x), accurate near zero."}.costs(0.8F);
  template <class T> MR_DEVICE_FN static T eval(T x) { return vec::log1p(x); }
  static Expr grad(Expr x, Expr, Expr dy) { return dy * reciprocal(1.0 + x); }
};
struct LogicalNot {
  static constexpr OpInfo info =
      OpInfo{"LogicalNot", {DType::kBool}, "Whether x is false."}.is_predicate();
  template <class T> MR_DEVICE_FN static bool eval(T x) { return !x; }
};
struct Ndtri {
  static constexpr OpInfo info = OpInfo{"Ndtri", kFloating, "The inverse of the normal distribution function."}.costs(60);
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    using E = vec::Element<T>;
    return vec::map(x, [](E e) { return static_cast<E>(normal_quantile(e)); });
  }
  static Expr grad(Expr, Expr y, Expr dy) { return dy * 2.5066282746310005 * exp(square(y) * 0.5); }
};
struct Neg {
  static constexpr OpInfo info{"Neg", kSignedNumbers | kComplex, "-x."};
  template <class T> MR_DEVICE_FN static T eval(T x) { return vec::neg(x); }
  static Expr grad(Expr, Expr, Expr dy) { return -dy; }
};
struct Reciprocal {
  static constexpr OpInfo info = OpInfo{"Reciprocal", kSignedNumbers | kComplex, "1 / x."}
                                     .computed_for(kFloatingOrComplex)
                                     .costs(0.4F);
  template <class T> MR_DEVICE_FN static T eval(T x) { return vec::lit<T>(1) / x; }
  static Expr grad(Expr, Expr y, Expr dy) { return call("ReciprocalGrad", {y, dy}); }
};
struct Inv {
  static constexpr OpInfo info = OpInfo{"Inv", kSignedNumbers | kComplex, "1 / x."}
                                     .computed_for(kFloatingOrComplex)
                                     .costs(0.4F)
                                     .deprecated(17, "Use Reciprocal");
  template <class T> MR_DEVICE_FN static T eval(T x) { return vec::lit<T>(1) / x; }
  static Expr grad(Expr, Expr y, Expr dy) { return call("ReciprocalGrad", {y, dy}); }
};
struct Relu {
  static constexpr OpInfo info =
      OpInfo{"Relu", kRealNumbers, "max(x, 0)."}.arguments("features", "activations");
  template <class T> MR_DEVICE_FN static T eval(T x) { return x < T{} ? T{} : x; }
  static Expr grad(Expr, Expr y, Expr dy) { return call("ReluGrad", {dy, y}); }
};
struct Relu6 {
  static constexpr OpInfo info =
      OpInfo{"Relu6", kRealNumbers, "min(max(x, 0), 6)."}.arguments("features", "activations");
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    const T y = x < T{} ? T{} : x;
    return y > vec::lit<T>(6) ? vec::lit<T>(6) : y;
  }
  static Expr grad(Expr, Expr y, Expr dy) { return call("Relu6Grad", {dy, y}); }
};
struct Rint {
  static constexpr OpInfo info =
      OpInfo{"Rint", kFloating, "The integer nearest x, ties to even."}.is_piecewise_constant();
  template <class T> MR_DEVICE_FN static T eval(T x) { return vec::rint(x); }
};
struct Round {
  static constexpr OpInfo info =
      OpInfo{"Round", kSignedNumbers | kComplex, "The integer nearest x, ties to even."}
          .is_piecewise_constant();
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    if constexpr (std::is_integral_v<vec::Element<T>>) {
      return x;
    } else {
      return vec::rint(x);
    }
  }
};
struct Rsqrt {
  static constexpr OpInfo info = OpInfo{"Rsqrt", kFloatingOrComplex, "1 / sqrt(x)."}.costs(0.5F);
  template <class T> MR_DEVICE_FN static T eval(T x) { return vec::lit<T>(1) / vec::sqrt(x); }
  static Expr grad(Expr, Expr y, Expr dy) { return call("RsqrtGrad", {y, dy}); }
};
// The scale and the product of scale and alpha of self-normalising networks (Klambauer et al.
// 2017).
inline constexpr double kSeluScale = 1.0507009873554804934;
inline constexpr double kSeluScaleAlpha = 1.7580993408473768600;
struct Selu {
  static constexpr OpInfo info =
      OpInfo{"Selu", kFloating, "scale * x, or scale * alpha * (exp(x) - 1) where x < 0."}
          .arguments("features", "activations")
          .costs(0.8F);
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    return x < T{} ? vec::lit<T>(kSeluScaleAlpha) * vec::expm1(x) : vec::lit<T>(kSeluScale) * x;
  }
  static Expr grad(Expr, Expr y, Expr dy) { return call("SeluGrad", {dy, y}); }
};
struct Sigmoid {
  static constexpr OpInfo info =
      OpInfo{"Sigmoid", kFloatingOrComplex, "1 / (1 + exp(-x))."}.costs(0.7F);
  template <class T> MR_DEVICE_FN static T eval(T x) { return vec::sigmoid(x); }
  static Expr grad(Expr, Expr y, Expr dy) { return call("SigmoidGrad", {y, dy}); }
};
struct Sign {
  static constexpr OpInfo info =
      OpInfo{"Sign", kSignedNumbers | kComplex, "-1, 0 or 1; x / |x| of a complex number."};
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    if constexpr (is_complex_v<T>) {
      return x == T{} ? x : x / std::abs(x);
    } else {
      const T positive = x > T{} ? vec::lit<T>(1) : x;  // keeps zeros and NaN
      return x < T{} ? vec::lit<T>(-1) : positive;
    }
  }
  // A step for real numbers. Of a complex one the direction counts: what of dy is across x, by |x|.
  static Expr grad(Expr x, Expr y, Expr dy) {
    if (!kComplex.contains(x.dtype())) return zeros_like(x);
    const DType part = x.dtype() == DType::kComplex64 ? DType::kFloat : DType::kDouble;
    const Expr size = cast(call("ComplexAbs", {x}, {{"Tout", part}}), x.dtype());
    const Expr safe = select(equal(x, zeros_like(x)), ones_like(x), size);
    const Expr direction = call("Conj", {y});
    return direction * (y * dy - direction * call("Conj", {dy})) / (2.0 * safe);
  }
};
struct Sin {
  static constexpr OpInfo info = OpInfo{"Sin", kFloatingOrComplex, "The sine of x."}.costs(0.7F);
  template <class T> MR_DEVICE_FN static T eval(T x) { return vec::sin(x); }
  static Expr grad(Expr x, Expr, Expr dy) { return dy * cos(x); }
};
struct Softplus {
  static constexpr OpInfo info = OpInfo{"Softplus", kRealNumbers, "log(exp(x) + 1)."}
                                     .arguments("features", "activations")
                                     .computed_for(kFloating)
                                     .costs(1.2F);
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    return (x > T{} ? x : T{}) + vec::log1p(vec::exp(-vec::abs(x)));
  }
  static Expr grad(Expr x, Expr, Expr dy) { return call("SoftplusGrad", {dy, x}); }
};
struct Softsign {
  static constexpr OpInfo info = OpInfo{"Softsign", kRealNumbers, "x / (|x| + 1)."}
                                     .arguments("features", "activations")
                                     .computed_for(kFloating)
                                     .costs(0.4F);
  template <class T> MR_DEVICE_FN static T eval(T x) { return x / (vec::abs(x) + vec::lit<T>(1)); }
  static Expr grad(Expr x, Expr, Expr dy) { return call("SoftsignGrad", {dy, x}); }
};
struct Spence {
  static constexpr OpInfo info = OpInfo{"Spence", kFloating, "The integral of log(t) / (1 - t) from 1 to x, x >= 0."}.costs(60);
  template <class T>
  MR_DEVICE_FN static T eval(T x) {
    using E = vec::Element<T>;
    return vec::map(x, [](E e) { return static_cast<E>(spence(e)); });
  }
  // log(x) / (1 - x) is -1 at one.
  static Expr grad(Expr x, Expr, Expr dy) {
    const Expr one = ones_like(x);
    return dy * select(equal(x, one), -one, log(x) / (1.0 - x));
  }
};
struct Sqrt {
  static constexpr OpInfo info =
      OpInfo{"Sqrt", kFloatingOrComplex, "The square root of x."}.costs(0.4F);
  template <class T> MR_DEVICE_FN static T eval(T x) { return vec::sqrt(x); }
  static Expr grad(Expr, Expr y, Expr dy) { return call("SqrtGrad", {y, dy}); }
};
struct Square {
  static constexpr OpInfo info{"Square", kSignedNumbers | kComplex, "x * x."};
  template <class T> MR_DEVICE_FN static T eval(T x) { return vec::mul(x, x); }
  static Expr grad(Expr x, Expr, Expr dy) { return dy * (2.0 * x); }
};
struct Tan {
  static constexpr OpInfo info = OpInfo{"Tan", kSignedNumbers | kComplex, "The tangent of x."}
                                     .computed_for(kFloatingOrComplex)
                                     .costs(0.8F);
  template <class T> MR_DEVICE_FN static T eval(T x) { return vec::tan(x); }
  static Expr grad(Expr, Expr y, Expr dy) { return dy * (1.0 + square(y)); }
};
struct Tanh {
  static constexpr OpInfo info =
      OpInfo{"Tanh", kFloatingOrComplex, "The hyperbolic tangent of x."}.costs(0.8F);
  template <class T> MR_DEVICE_FN static T eval(T x) { return vec::tanh(x); }
  static Expr grad(Expr, Expr y, Expr dy) { return call("TanhGrad", {y, dy}); }
};
// clang-format on

using UnaryOps =
    OpList<Abs, Acos, Asin, Atan, BesselI0, BesselI0e, BesselI1, BesselI1e, BesselJ0, BesselJ1,
           BesselK0, BesselK0e, BesselK1, BesselK1e, BesselY0, BesselY1, Ceil, Cos, Dawsn, Digamma,
           Elu, Erf, Erfc, Erfinv, Exp, Expint, Expm1, Floor, FresnelCos, FresnelSin, Inv, Invert,
           IsFinite, IsInf, IsNan, Lgamma, Log, Log1p, LogicalNot, Ndtri, Neg, Reciprocal, Relu,
           Relu6, Rint, Round, Rsqrt, Selu, Sigmoid, Sign, Sin, Softplus, Softsign, Spence, Sqrt,
           Square, Tan, Tanh>;

}  // namespace MR_ISA_NAMESPACE
}  // namespace millrace
