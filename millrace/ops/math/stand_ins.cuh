// What stands in for headers of the host where NVRTC compiles the formulas of elementwise ops.
// Graphs, op definitions and complex numbers are there in name alone.

using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned;
using uint64_t = unsigned long long;

namespace std {

using size_t = decltype(sizeof(0));

template <bool kFirst, class A, class B>
struct conditional {
  using type = A;
};
template <class A, class B>
struct conditional<false, A, B> {
  using type = B;
};
template <bool kFirst, class A, class B>
using conditional_t = typename conditional<kFirst, A, B>::type;

template <class A, class B>
inline constexpr bool is_same_v = false;
template <class A>
inline constexpr bool is_same_v<A, A> = true;
template <class T>
inline constexpr bool is_floating_point_v = is_same_v<T, float> || is_same_v<T, double>;

template <class T>
struct Integer;
template <class T>
inline constexpr bool is_integral_v = requires { Integer<T>::kLow; };
template <class T>
inline constexpr bool is_arithmetic_v = is_integral_v<T> || is_floating_point_v<T>;
template <class T>
inline constexpr bool is_signed_v = is_arithmetic_v<T> && T(-1) < T(0);
template <class T>
inline constexpr bool is_unsigned_v = is_integral_v<T> && !(T(-1) < T(0));

#define MR_INTEGER(type, unsigned_type, low, high)  \
  template <>                                       \
  struct Integer<type> {                            \
    using Unsigned = unsigned_type;                 \
    static constexpr type kLow = low, kHigh = high; \
  };
MR_INTEGER(bool, bool, false, true)
MR_INTEGER(int8_t, uint8_t, -128, 127)
MR_INTEGER(int16_t, uint16_t, -32768, 32767)
MR_INTEGER(int32_t, uint32_t, -2147483647 - 1, 2147483647)
MR_INTEGER(int64_t, uint64_t, -9223372036854775807LL - 1, 9223372036854775807LL)
MR_INTEGER(uint8_t, uint8_t, 0, 255)
MR_INTEGER(uint16_t, uint16_t, 0, 65535)
MR_INTEGER(uint32_t, uint32_t, 0, 4294967295U)
MR_INTEGER(uint64_t, uint64_t, 0, 18446744073709551615ULL)
#undef MR_INTEGER

template <class T>
using make_unsigned_t = typename Integer<T>::Unsigned;
template <class T>
struct numeric_limits {
  static constexpr T min() { return Integer<T>::kLow; }
  static constexpr T max() { return Integer<T>::kHigh; }
};

template <class T>
T abs(T);
template <class T>
T norm(T);

}  // namespace std

namespace millrace {

enum class DType { kBool, kFloat, kDouble, kComplex64 };
struct TypeSet {
  template <class... Types>
  constexpr TypeSet(Types...) {}
  constexpr bool contains(DType) const { return false; }
};
constexpr TypeSet operator|(TypeSet, TypeSet) { return {}; }
inline constexpr TypeSet kComplex, kFloating, kIntegers, kNumbers, kNumberTypes, kRealNumbers,
    kSignedIntegers;

enum class OperandCheck { kDivisor, kExponent };
enum class Neutral { kZero, kMinusZero, kOne };
struct OpInfo {
  constexpr OpInfo(const char*, TypeSet, const char*) {}
#define MR_SAYS(what)                         \
  template <class... Arguments>               \
  constexpr OpInfo what(Arguments...) const { \
    return *this;                             \
  }
  MR_SAYS(arguments)
  MR_SAYS(checks)
  MR_SAYS(computed_for)
  MR_SAYS(costs)
  MR_SAYS(deprecated)
  MR_SAYS(is_affine)
  MR_SAYS(is_commutative)
  MR_SAYS(is_piecewise_constant)
  MR_SAYS(is_predicate)
  MR_SAYS(leaves_alone)
  MR_SAYS(not_holomorphic)
  MR_SAYS(same_shape)
#undef MR_SAYS
};
template <class... Ops>
struct OpList {};

struct Expr {
  constexpr Expr() = default;
  constexpr Expr(double) {}
  DType dtype() const { return DType::kFloat; }
};
struct ExprPair {
  Expr first, second;
};
struct Attr {
  const char* name;
  DType type;
};
Expr operator+(Expr, Expr);
Expr operator-(Expr, Expr);
Expr operator*(Expr, Expr);
Expr operator/(Expr, Expr);
Expr operator-(Expr);
struct Operands {
  template <class... Exprs>
  constexpr Operands(Exprs...) {}
};
struct Attrs {
  constexpr Attrs() = default;
  constexpr Attrs(Attr) {}
};
Expr call(const char*, Operands, Attrs = {});
Expr cast(Expr, DType);
Expr constant_like(Expr, double);
Expr select(Expr, Expr, Expr);
#define MR_FUNCTION(name) Expr name(Expr);
MR_FUNCTION(abs)
MR_FUNCTION(cos)
MR_FUNCTION(exp)
MR_FUNCTION(log)
MR_FUNCTION(ones_like)
MR_FUNCTION(reciprocal)
MR_FUNCTION(rsqrt)
MR_FUNCTION(sign)
MR_FUNCTION(sin)
MR_FUNCTION(square)
MR_FUNCTION(zeros_like)
#undef MR_FUNCTION
#define MR_FUNCTION(name) Expr name(Expr, Expr);
MR_FUNCTION(equal)
MR_FUNCTION(greater)
MR_FUNCTION(greater_equal)
MR_FUNCTION(less)
MR_FUNCTION(less_equal)
MR_FUNCTION(logical_and)
MR_FUNCTION(pow)
#undef MR_FUNCTION

template <class T>
inline constexpr bool is_complex_v = false;

// The types of 16 bits, and the same instructions as in device_values.cuh.
struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
template <class T>
using ComputeType =
    std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;

template <class T>
__device__ __forceinline__ ComputeType<T> widen(T v) {
  if constexpr (std::is_same_v<T, Half>) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(v.bits));
    return wide;
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return __uint_as_float(static_cast<unsigned>(v.bits) << 16);
  } else {
    return v;
  }
}
template <class T>
__device__ __forceinline__ T narrow(ComputeType<T> v) {
  if constexpr (std::is_same_v<T, Half>) {
    T out;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out.bits) : "f"(v));
    return out;
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    T out;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.bits) : "f"(v));
    return out;
  } else {
    return v;
  }
}

}  // namespace millrace
