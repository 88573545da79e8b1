#pragma once

#include <type_traits>

#include "millrace/graph/expr.h"
#include "millrace/ops/math/complex_math.h"
#include "millrace/ops/math/elementwise.h"
#include "millrace/ops/math/special_functions.h"
#include "millrace/ops/vector.h"
#include "millrace/tensor/complex.h"

// The table of broadcasting ops z = f(x, y). An entry has
//
//   info   name, types and what else passes ask;
//   eval   the formula, for scalars and (but for predicates) vectors of float, double, int32 and
//          int64 alike. It is defined for every pair of integers: sums wrap, a division by zero
//          gives zero (the kernel reports it);
//   grad   dx and dy before they are summed back to the shapes of x and y; of complex numbers x, y
//          and z are the conjugates. An empty Expr: there is none.
//
// binary.cc makes definition, rules and kernels of it.

namespace millrace {
inline namespace MR_ISA_NAMESPACE {

namespace vec {

// Integer division towards zero, without traps: x / 0 is 0, and the smallest integer / -1 wraps.
template <class T>
MR_DEVICE_FN T int_div(T x, T y) {
  if (y == 0) return 0;
  if constexpr (std::is_signed_v<T>) {
    if (y == -1) return neg(x);
  }
  return static_cast<T>(x / y);
}
template <class T>
MR_DEVICE_FN T int_mod(T x, T y) {
  return sub(x, mul(int_div(x, y), y));
}

// `value`, or 0 where `key` is.
template <class V>
MR_DEVICE_FN V zero_if(V key, V value) {
  return key == V{} ? V{} : value;
}

// `places`, at least 0 and less than the bits that its type has.
template <class E>
MR_DEVICE_FN int shift_within(E places) {
  constexpr E kMost = static_cast<E>(sizeof(E) * 8 - 1);
  return static_cast<int>(places < E{} ? E{} : places > kMost ? kMost : places);
}

template <class V>
MR_DEVICE_FN V truncate_div(V x, V y) {
  return map(x, y, [](Element<V> a, Element<V> b) { return int_div(a, b); });
}

template <class V>
MR_DEVICE_FN V truncate_mod(V x, V y) {
  if constexpr (std::is_integral_v<Element<V>>) {
    return map(x, y,
               [](Element<V> a, Element<V> b) { return b == 0 ? Element<V>{} : int_mod(a, b); });
  } else {
    return fmod(x, y);
  }
}

template <class V>
MR_DEVICE_FN V floor_mod(V x, V y) {
  const V r = truncate_mod(x, y);
  const V moved = add(r, y);
  const V negative = r < V{} ? moved : r;  // for y > 0
  const V positive = r > V{} ? moved : r;  // for y < 0
  return y < V{} ? positive : negative;
}

template <class V>
MR_DEVICE_FN V floor_div(V x, V y) {
  using E = Element<V>;
  if constexpr (std::is_integral_v<E>) {
    return map(x, y, [](E a, E b) -> E {
      const E q = int_div(a, b);
      const E r = sub(a, mul(q, b));
      return b != 0 && r != 0 && (r < 0) != (b < 0) ? sub(q, E{1}) : q;
    });
  } else {
    return floor(x / y);
  }
}

// x to the power of y >= 0 by squaring; what overflows wraps.
template <class T>
MR_DEVICE_FN T int_pow(T x, T y) {
  T result = 1;
  for (; y > 0; y = static_cast<T>(y >> 1)) {
    if (y & 1) result = mul(result, x);
    x = mul(x, x);
  }
  return result;
}

}  // namespace vec

inline constexpr TypeSet kModTypes = kFloating | kIntegers;

// One formula, one line.
// clang-format off
struct Add {
  static constexpr OpInfo info =
      OpInfo{"Add", kNumbers, "x + y; strings are joined."}
          .leaves_alone(Neutral::kMinusZero)
          .is_affine(3, 3);
  template <class T> MR_DEVICE_FN static T eval(T x, T y) { return vec::add(x, y); }
  static ExprPair grad(Expr, Expr, Expr, Expr g) { return {g, g}; }
};
struct AddV2 {
  static constexpr OpInfo info = OpInfo{"AddV2", kNumbers, "x + y."}
                                     .is_commutative()
                                     .leaves_alone(Neutral::kMinusZero)
                                     .is_affine(3, 3);
  template <class T> MR_DEVICE_FN static T eval(T x, T y) { return vec::add(x, y); }
  static ExprPair grad(Expr, Expr, Expr, Expr g) { return {g, g}; }
};
struct Sub {
  static constexpr OpInfo info =
      OpInfo{"Sub", kNumbers, "x - y."}.leaves_alone(Neutral::kZero).is_affine(3, 3);
  template <class T> MR_DEVICE_FN static T eval(T x, T y) { return vec::sub(x, y); }
  static ExprPair grad(Expr, Expr, Expr, Expr g) { return {g, -g}; }
};
struct Mul {
  static constexpr OpInfo info = OpInfo{"Mul", kNumbers, "x * y."}
                                     .is_commutative()
                                     .leaves_alone(Neutral::kOne)
                                     .is_affine(3, 0);
  template <class T> MR_DEVICE_FN static T eval(T x, T y) { return vec::mul(x, y); }
  static ExprPair grad(Expr x, Expr y, Expr, Expr g) { return {g * y, x * g}; }
};
struct Div {
  static constexpr OpInfo info =
      OpInfo{"Div", kNumbers, "x / y; of integers, towards zero."}
          .costs(0.5F)
          .checks(OperandCheck::kDivisor)
          .leaves_alone(Neutral::kOne);
  template <class T>
  MR_DEVICE_FN static T eval(T x, T y) {
    if constexpr (std::is_integral_v<vec::Element<T>>) {
      return vec::truncate_div(x, y);
    } else {
      return x / y;
    }
  }
  static ExprPair grad(Expr x, Expr y, Expr, Expr g) { return {g / y, g * ((-x / y) / y)}; }
};
struct RealDiv {
  static constexpr OpInfo info = OpInfo{"RealDiv", kNumbers, "x / y of real numbers."}
                                     .computed_for(kFloating | kComplex)
                                     .costs(0.5F)
                                     .leaves_alone(Neutral::kOne)
                                     .is_affine(1, 0);
  template <class T> MR_DEVICE_FN static T eval(T x, T y) { return x / y; }
  static ExprPair grad(Expr x, Expr y, Expr, Expr g) { return {g / y, g * ((-x / y) / y)}; }
};
struct FloorDiv {
  static constexpr OpInfo info =
      OpInfo{"FloorDiv", kNumbers, "The largest integer not above x / y."}
          .computed_for(kRealNumbers)
          .costs(0.8F)
          .checks(OperandCheck::kDivisor)
          .is_piecewise_constant();
  template <class T> MR_DEVICE_FN static T eval(T x, T y) { return vec::floor_div(x, y); }
};
struct TruncateDiv {
  static constexpr OpInfo info = OpInfo{"TruncateDiv", kNumbers, "x / y of integers, towards zero."}
                                     .computed_for(kIntegers)
                                     .costs(0.8F)
                                     .checks(OperandCheck::kDivisor)
                                     .is_piecewise_constant()
                                     .leaves_alone(Neutral::kOne);
  template <class T> MR_DEVICE_FN static T eval(T x, T y) { return vec::truncate_div(x, y); }
};
struct FloorMod {
  static constexpr OpInfo info =
      OpInfo{"FloorMod", kModTypes, "x - y * floor(x / y): the remainder has the sign of y."}
          .costs(5)
          .checks(OperandCheck::kDivisor);
  template <class T> MR_DEVICE_FN static T eval(T x, T y) { return vec::floor_mod(x, y); }
  static ExprPair grad(Expr x, Expr y, Expr, Expr g) {
    return {g, -(g * call("FloorDiv", {x, y}))};
  }
};
struct Mod {
  static constexpr OpInfo info =
      OpInfo{"Mod", kModTypes, "The remainder of x / y, with the sign of x."}.costs(5).checks(
          OperandCheck::kDivisor);
  template <class T> MR_DEVICE_FN static T eval(T x, T y) { return vec::truncate_mod(x, y); }
  static ExprPair grad(Expr x, Expr y, Expr z, Expr g) { return {g, g * ((z - x) / y)}; }
};
struct TruncateMod {
  static constexpr OpInfo info =
      OpInfo{"TruncateMod", kModTypes, "The remainder of x / y, with the sign of x."}
          .costs(5)
          .checks(OperandCheck::kDivisor);
  template <class T> MR_DEVICE_FN static T eval(T x, T y) { return vec::truncate_mod(x, y); }
  static ExprPair grad(Expr x, Expr y, Expr z, Expr g) { return {g, g * ((z - x) / y)}; }
};
struct Maximum {
  static constexpr OpInfo info =
      OpInfo{"Maximum", kRealNumbers, "The larger of x and y; NaN when either is."}
          .is_commutative();
  template <class T> MR_DEVICE_FN static T eval(T x, T y) { return vec::max(x, y); }
  static ExprPair grad(Expr x, Expr y, Expr, Expr g) {
    const Expr first = greater_equal(x, y), zeros = zeros_like(g);
    return {select(first, g, zeros), select(first, zeros, g)};
  }
};
struct Minimum {
  static constexpr OpInfo info =
      OpInfo{"Minimum", kRealNumbers, "The smaller of x and y; NaN when either is."}
          .is_commutative();
  template <class T> MR_DEVICE_FN static T eval(T x, T y) { return vec::min(x, y); }
  static ExprPair grad(Expr x, Expr y, Expr, Expr g) {
    const Expr first = less_equal(x, y), zeros = zeros_like(g);
    return {select(first, g, zeros), select(first, zeros, g)};
  }
};
struct Igamma {
  static constexpr OpInfo info =
      OpInfo{"Igamma", kFloating, "The part of gamma(a) whose integral is below x."}
          .arguments("a", "x", "z")
          .costs(100);
  template <class T>
  MR_DEVICE_FN static T eval(T a, T x) {
    using E = vec::Element<T>;
    return vec::map(a, x, [](E b, E y) { return static_cast<E>(lower_gamma(b, y)); });
  }
  static ExprPair grad(Expr a, Expr x, Expr, Expr g) {
    return {g * call("IgammaGradA", {a, x}), g * exp((a - 1.0) * log(x) - x - call("Lgamma", {a}))};
  }
};
struct Igammac {
  static constexpr OpInfo info =
      OpInfo{"Igammac", kFloating, "The part of gamma(a) whose integral is above x."}
          .arguments("a", "x", "z")
          .costs(100);
  template <class T>
  MR_DEVICE_FN static T eval(T a, T x) {
    using E = vec::Element<T>;
    return vec::map(a, x, [](E b, E y) { return static_cast<E>(upper_gamma(b, y)); });
  }
  static ExprPair grad(Expr a, Expr x, Expr z, Expr g) { return Igamma::grad(a, x, z, -g); }
};
struct Polygamma {
  static constexpr OpInfo info =
      OpInfo{"Polygamma", {DType::kFloat, DType::kDouble}, "The a-th derivative of digamma at x."}
          .arguments("a", "x", "z")
          .costs(200);
  template <class T>
  MR_DEVICE_FN static T eval(T a, T x) {
    using E = vec::Element<T>;
    return vec::map(a, x, [](E n, E y) { return static_cast<E>(polygamma(n, y)); });
  }
  static ExprPair grad(Expr a, Expr x, Expr, Expr g) {
    return {Expr(), g * call("Polygamma", {a + 1.0, x})};
  }
};
struct Pow {
  static constexpr OpInfo info =
      OpInfo{"Pow", kFloating | kSignedIntegers | kComplex, "x to the power of y."}.costs(1.5F).checks(
          OperandCheck::kExponent);
  template <class T>
  MR_DEVICE_FN static T eval(T x, T y) {
    using E = vec::Element<T>;
    if constexpr (std::is_integral_v<E>) {
      return vec::map(x, y, [](E a, E b) { return vec::int_pow(a, b); });
    } else {
      return vec::pow(x, y);
    }
  }
  // The logarithm counts as zero where x has none, so that a constant exponent gives no NaN; and
  // y * x^(y-1) is 0 where both are.
  static ExprPair grad(Expr x, Expr y, Expr z, Expr g) {
    const Expr zeros = zeros_like(x);
    const Expr has_log =
        kComplex.contains(x.dtype()) ? call("NotEqual", {x, zeros}) : greater(x, zeros);
    const Expr safe = select(has_log, x, ones_like(x));
    const Expr zero = constant_like(x, 0);
    const Expr both = logical_and(equal(x, zero), equal(y, zero));
    const Expr less = call("SelectV2", {both, constant_like(y, 1), y - 1.0});
    return {g * y * pow(x, less), g * z * log(safe)};
  }
};
struct SquaredDifference {
  static constexpr OpInfo info =
      OpInfo{"SquaredDifference", kFloating | kIntegers | kComplex, "|x - y| squared."}
          .is_commutative()
          .not_holomorphic();
  template <class T>
  MR_DEVICE_FN static T eval(T x, T y) {
    const T d = vec::sub(x, y);
    if constexpr (is_complex_v<T>) {
      return T(std::norm(d));
    } else {
      return vec::mul(d, d);
    }
  }
  static ExprPair grad(Expr x, Expr y, Expr, Expr g) {
    // Of complex numbers the result is real, and so is what comes back for it.
    const Expr twice = kComplex.contains(g.dtype()) ? g + call("Conj", {g}) : 2.0 * g;
    const Expr d = twice * (x - y);
    return {d, -d};
  }
};

#define MR_DEFINE_COMPARISON(op, types, symbol, doc)                       \
  struct op {                                                              \
    static constexpr OpInfo info = OpInfo{#op, types, doc}.is_predicate(); \
    template <class T>                                                     \
    MR_DEVICE_FN static bool eval(T x, T y) {                              \
      return x symbol y;                                                   \
    }                                                                      \
  };
MR_DEFINE_COMPARISON(Greater, kRealNumbers, >, "Whether x > y.")
MR_DEFINE_COMPARISON(GreaterEqual, kRealNumbers, >=, "Whether x >= y.")
MR_DEFINE_COMPARISON(Less, kRealNumbers, <, "Whether x < y.")
MR_DEFINE_COMPARISON(LessEqual, kRealNumbers, <=, "Whether x <= y.")
#undef MR_DEFINE_COMPARISON

struct Equal {
  static constexpr OpInfo info =
      OpInfo{"Equal", kNumberTypes | TypeSet{DType::kBool}, "Whether x is y."}
          .is_predicate()
          .is_commutative();
  template <class T> MR_DEVICE_FN static bool eval(T x, T y) { return x == y; }
};
struct NotEqual {
  static constexpr OpInfo info =
      OpInfo{"NotEqual", kNumberTypes | TypeSet{DType::kBool}, "Whether x is not y."}
          .is_predicate()
          .is_commutative();
  template <class T> MR_DEVICE_FN static bool eval(T x, T y) { return x != y; }
};
struct BitwiseAnd {
  static constexpr OpInfo info = OpInfo{"BitwiseAnd", kIntegers, "The bits that x and y have."}.is_piecewise_constant().is_commutative();
  template <class T>
  MR_DEVICE_FN static T eval(T x, T y) {
    using E = vec::Element<T>;
    return vec::map(x, y, [](E a, E b) { return static_cast<E>(a & b); });
  }
};
struct BitwiseOr {
  static constexpr OpInfo info = OpInfo{"BitwiseOr", kIntegers, "The bits that x or y has."}.is_piecewise_constant().is_commutative();
  template <class T>
  MR_DEVICE_FN static T eval(T x, T y) {
    using E = vec::Element<T>;
    return vec::map(x, y, [](E a, E b) { return static_cast<E>(a | b); });
  }
};
struct BitwiseXor {
  static constexpr OpInfo info = OpInfo{"BitwiseXor", kIntegers, "The bits that x and y differ in."}.is_piecewise_constant().is_commutative();
  template <class T>
  MR_DEVICE_FN static T eval(T x, T y) {
    using E = vec::Element<T>;
    return vec::map(x, y, [](E a, E b) { return static_cast<E>(a ^ b); });
  }
};
struct LeftShift {
  static constexpr OpInfo info = OpInfo{"LeftShift", kIntegers, "x with its bits y places further up; places are kept within the type."}.is_piecewise_constant();
  template <class T>
  MR_DEVICE_FN static T eval(T x, T y) {
    using E = vec::Element<T>;
    return vec::map(x, y, [](E a, E b) {
      return static_cast<E>(static_cast<std::make_unsigned_t<E>>(a) << vec::shift_within(b));
    });
  }
};
struct RightShift {
  static constexpr OpInfo info = OpInfo{"RightShift", kIntegers, "x with its bits y places further down, the sign kept; places are kept within the type."}.is_piecewise_constant();
  template <class T>
  MR_DEVICE_FN static T eval(T x, T y) {
    using E = vec::Element<T>;
    return vec::map(x, y, [](E a, E b) { return static_cast<E>(a >> vec::shift_within(b)); });
  }
};
struct LogicalAnd {
  static constexpr OpInfo info = OpInfo{"LogicalAnd", {DType::kBool}, "Whether x and y are true."}
                                     .is_predicate()
                                     .is_commutative()
                                     .leaves_alone(Neutral::kOne);
  template <class T> MR_DEVICE_FN static bool eval(T x, T y) { return x & y; }
};
struct LogicalOr {
  static constexpr OpInfo info = OpInfo{"LogicalOr", {DType::kBool}, "Whether x or y is true."}
                                     .is_predicate()
                                     .is_commutative()
                                     .leaves_alone(Neutral::kZero);
  template <class T> MR_DEVICE_FN static bool eval(T x, T y) { return x | y; }
};
// clang-format on

// The ops below are 0 where their first rule of arithmetic would give NaN.

struct DivNoNan {
  static constexpr OpInfo info =
      OpInfo{"DivNoNan", kFloating | kComplex, "x / y, or 0 where y is 0."}.costs(0.5F);
  template <class T>
  MR_DEVICE_FN static T eval(T x, T y) {
    return vec::zero_if(y, x / y);
  }
  static ExprPair grad(Expr x, Expr y, Expr, Expr g) {
    const auto div = [](Expr a, Expr b) { return call("DivNoNan", {a, b}); };
    return {div(g, y), g * div(div(-x, y), y)};
  }
};

struct MulNoNan {
  static constexpr OpInfo info =
      OpInfo{"MulNoNan", kFloating | kComplex, "x * y, or 0 where y is 0."};
  template <class T>
  MR_DEVICE_FN static T eval(T x, T y) {
    return vec::zero_if(y, x * y);
  }
  static ExprPair grad(Expr x, Expr y, Expr, Expr g) {
    return {call("MulNoNan", {g, y}), call("MulNoNan", {x, g})};
  }
};

struct Xdivy {
  static constexpr OpInfo info =
      OpInfo{"Xdivy", kFloating | kComplex, "x / y, or 0 where x is 0."}.costs(0.5F);
  template <class T>
  MR_DEVICE_FN static T eval(T x, T y) {
    return vec::zero_if(x, x / y);
  }
  static ExprPair grad(Expr x, Expr y, Expr, Expr g) {
    const auto div = [](Expr a, Expr b) { return call("DivNoNan", {a, b}); };
    return {div(g, y), g * div(div(-x, y), y)};
  }
};

struct Xlog1py {
  static constexpr OpInfo info =
      OpInfo{"Xlog1py", kFloating | kComplex, "x * log(1 + y), or 0 where x is 0."}.costs(1);
  template <class T>
  MR_DEVICE_FN static T eval(T x, T y) {
    return vec::zero_if(x, x * vec::log1p(y));
  }
  static ExprPair grad(Expr x, Expr y, Expr, Expr g) {
    // Where x is 0 and the logarithm is none, the gradient is 0 too.
    const Expr has_log = kComplex.contains(y.dtype()) ? call("NotEqual", {y, -ones_like(y)})
                                                      : greater(y, -ones_like(y));
    const Expr safe = select(has_log, y, zeros_like(y));
    return {g * call("Log1p", {safe}), g * call("DivNoNan", {x, y + 1.0})};
  }
};

struct Xlogy {
  static constexpr OpInfo info =
      OpInfo{"Xlogy", kFloating | kComplex, "x * log(y), or 0 where x is 0."}.costs(1);
  template <class T>
  MR_DEVICE_FN static T eval(T x, T y) {
    return vec::zero_if(x, x * vec::log(y));
  }
  static ExprPair grad(Expr x, Expr y, Expr, Expr g) {
    const Expr has_log = kComplex.contains(y.dtype()) ? call("NotEqual", {y, zeros_like(y)})
                                                      : greater(y, zeros_like(y));
    const Expr safe = select(has_log, y, ones_like(y));
    return {g * log(safe), g * call("DivNoNan", {x, y})};
  }
};

struct Zeta {
  static constexpr OpInfo info =
      OpInfo{"Zeta", {DType::kFloat, DType::kDouble}, "The sum of (q + k)^-x over k = 0, 1, ..."}
          .arguments("x", "q", "z")
          .costs(200);
  template <class T>
  MR_DEVICE_FN static T eval(T x, T q) {
    using E = vec::Element<T>;
    return vec::map(x, q, [](E e, E r) { return static_cast<E>(hurwitz_zeta(e, r)); });
  }
  static ExprPair grad(Expr x, Expr q, Expr, Expr g) {
    return {Expr(), g * (-x * call("Zeta", {x + 1.0, q}))};
  }
};

using BinaryOps = OpList<Add, AddV2, BitwiseAnd, BitwiseOr, BitwiseXor, Div, DivNoNan, Equal,
                         FloorDiv, FloorMod, Greater, GreaterEqual, Igamma, Igammac, LeftShift,
                         Less, LessEqual, LogicalAnd, LogicalOr, Maximum, Minimum, Mod, Mul,
                         MulNoNan, NotEqual, Polygamma, Pow, RealDiv, RightShift, SquaredDifference,
                         Sub, TruncateDiv, TruncateMod, Xdivy, Xlog1py, Xlogy, Zeta>;

}  // namespace MR_ISA_NAMESPACE
}  // namespace millrace
