#include "millrace/ops/math/binary_ops.h"
#include "millrace/ops/math/gradient_ops.h"
#include "millrace/tensor/dispatch.h"

// The loops of binary_ops.h and gradient_ops.h.

namespace millrace {
namespace {

template <class T>
constexpr bool kHasVectors =
    std::is_floating_point_v<T> || std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t>;

template <class Op, class T>
void binary_loop(const void* x_data, const void* y_data, void* z_data, int64_t n) {
  const T* x = static_cast<const T*>(x_data);
  const T* y = static_cast<const T*>(y_data);
  if constexpr (Op::info.predicate) {
    bool* z = static_cast<bool*>(z_data);
    for (int64_t i = 0; i < n; ++i) z[i] = Op::eval(x[i], y[i]);
  } else if constexpr (kHasVectors<T>) {
    T* z = static_cast<T*>(z_data);
    constexpr int64_t kStep = vec::kLanes<T>;
    if (n < kStep) {
      for (int64_t i = 0; i < n; ++i) z[i] = Op::eval(x[i], y[i]);
      return;
    }
    // The last vectors overlap those before them; they are read first because z may be x or y.
    const vec::Vec<T> last_x = vec::load(x + n - kStep);
    const vec::Vec<T> last_y = vec::load(y + n - kStep);
    for (int64_t i = 0; i < n - kStep; i += kStep) {
      vec::store(z + i, Op::eval(vec::load(x + i), vec::load(y + i)));
    }
    vec::store(z + n - kStep, Op::eval(last_x, last_y));
  } else {
    T* z = static_cast<T*>(z_data);
    for (int64_t i = 0; i < n; ++i) z[i] = Op::eval(x[i], y[i]);
  }
}

// The same where operand `repeated` is a single element.
template <class Op, int repeated>
void repeated_loop(const void* x_data, const void* y_data, void* z_data, int64_t n) {
  const float* x = static_cast<const float*>(repeated == 0 ? y_data : x_data);
  const float one = *static_cast<const float*>(repeated == 0 ? x_data : y_data);
  const vec::Vec<float> all = vec::broadcast(one);
  float* z = static_cast<float*>(z_data);
  const auto eval = [](auto a, auto b) __attribute__((always_inline)) {
    return repeated == 0 ? Op::eval(b, a) : Op::eval(a, b);
  };
  constexpr int64_t kStep = vec::kLanes<float>;
  if (n < kStep) {
    for (int64_t i = 0; i < n; ++i) z[i] = eval(x[i], one);
    return;
  }
  const vec::Vec<float> last = vec::load(x + n - kStep);
  for (int64_t i = 0; i < n - kStep; i += kStep) vec::store(z + i, eval(vec::load(x + i), all));
  vec::store(z + n - kStep, eval(last, all));
}

// What normalisations do with one number for each row.
using RowOps = OpList<Add, AddV2, Sub, Mul, RealDiv, SquaredDifference>;

template <class... Ops>
BinaryLoop pick_repeated_loop(const char* op, int repeated, OpList<Ops...>) {
  BinaryLoop loop = nullptr;
  const auto consider = [&]<class Op>() {
    if (__builtin_strcmp(op, Op::info.name) != 0) return;
    loop = repeated == 0 ? &repeated_loop<Op, 0> : &repeated_loop<Op, 1>;
  };
  (consider.template operator()<Ops>(), ...);
  return loop;
}

template <class Op, class... Ts>
BinaryLoop binary_loop_of(DType dtype, TypeList<Ts...>) {
  BinaryLoop loop = nullptr;
  const auto consider = [&]<class T>() {
    if constexpr (Op::info.kernels.contains(dtype_of<T>)) {
      if (dtype == dtype_of<T>) loop = &binary_loop<Op, T>;
    }
  };
  (consider.template operator()<Ts>(), ...);
  return loop;
}

template <class... Ops, class Types>
BinaryLoop pick_binary_loop(const char* op, DType dtype, OpList<Ops...>, Types types) {
  BinaryLoop loop = nullptr;
  const auto consider = [&]<class Op>() {
    if (__builtin_strcmp(op, Op::info.name) == 0) loop = binary_loop_of<Op>(dtype, types);
  };
  (consider.template operator()<Ops>(), ...);
  return loop;
}

// Other types gain nothing by wider vectors; only the baseline has them.
using VectorTypes = TypeList<float, double, int32_t, int64_t>;
using LoopTypes =
    std::conditional_t<Isa::MR_ISA == Isa::kBaseline,
                       ConcatTypes<TypeList<float, double, bool>, IntegerTypes, ComplexTypes>,
                       VectorTypes>;

BinaryLoop find_loop(const char* op, DType dtype) {
  const BinaryLoop loop = pick_binary_loop(op, dtype, BinaryOps(), LoopTypes());
  return loop != nullptr ? loop : pick_binary_loop(op, dtype, GradientOps(), LoopTypes());
}

BinaryLoop find_repeated_loop(const char* op, DType dtype, int repeated) {
  return dtype == DType::kFloat ? pick_repeated_loop(op, repeated, RowOps()) : nullptr;
}

constexpr BinaryLoops kBinaryLoops = {&find_loop, &find_repeated_loop};

}  // namespace

template <>
const BinaryLoops& isa_table<BinaryLoops, Isa::MR_ISA>() {
  return kBinaryLoops;
}

}  // namespace millrace
