#include "millrace/ops/math/unary_ops.h"
#include "millrace/tensor/dispatch.h"

// The loops of unary_ops.h.

namespace millrace {
namespace {

template <class Op, class T>
void unary_loop(const void* x_data, void* y_data, int64_t n) {
  const T* x = static_cast<const T*>(x_data);
  if constexpr (Op::info.predicate) {
    bool* y = static_cast<bool*>(y_data);
    for (int64_t i = 0; i < n; ++i) y[i] = Op::eval(x[i]);
  } else if constexpr (std::is_floating_point_v<T>) {
    T* y = static_cast<T*>(y_data);
    constexpr int64_t kStep = vec::kLanes<T>;
    if (n < kStep) {
      for (int64_t i = 0; i < n; ++i) y[i] = Op::eval(x[i]);
      return;
    }
    // The last vector overlaps the one before it; it is read first because y may be x.
    const vec::Vec<T> last = vec::load(x + n - kStep);
    for (int64_t i = 0; i < n - kStep; i += kStep) vec::store(y + i, Op::eval(vec::load(x + i)));
    vec::store(y + n - kStep, Op::eval(last));
  } else {
    T* y = static_cast<T*>(y_data);
    for (int64_t i = 0; i < n; ++i) y[i] = Op::eval(x[i]);
  }
}

template <class Op, class... Ts>
UnaryLoop unary_loop_of(DType dtype, TypeList<Ts...>) {
  UnaryLoop loop = nullptr;
  const auto consider = [&]<class T>() {
    if constexpr (Op::info.kernels.contains(dtype_of<T>)) {
      if (dtype == dtype_of<T>) loop = &unary_loop<Op, T>;
    }
  };
  (consider.template operator()<Ts>(), ...);
  return loop;
}

template <class... Ops, class Types>
UnaryLoop pick_unary_loop(const char* op, DType dtype, OpList<Ops...>, Types types) {
  UnaryLoop loop = nullptr;
  const auto consider = [&]<class Op>() {
    if (__builtin_strcmp(op, Op::info.name) == 0) loop = unary_loop_of<Op>(dtype, types);
  };
  (consider.template operator()<Ops>(), ...);
  return loop;
}

// Other types gain nothing by wider vectors; only the baseline has them.
using VectorTypes = TypeList<float, double>;
using LoopTypes =
    std::conditional_t<Isa::MR_ISA == Isa::kBaseline,
                       ConcatTypes<VectorTypes, TypeList<bool>, IntegerTypes, ComplexTypes>,
                       VectorTypes>;

UnaryLoop find_loop(const char* op, DType dtype) {
  return pick_unary_loop(op, dtype, UnaryOps(), LoopTypes());
}

constexpr UnaryLoops kUnaryLoops = {&find_loop};

}  // namespace

template <>
const UnaryLoops& isa_table<UnaryLoops, Isa::MR_ISA>() {
  return kUnaryLoops;
}

}  // namespace millrace
