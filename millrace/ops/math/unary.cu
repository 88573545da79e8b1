// The table of unary_ops.h on a GPU.

#include "millrace/ops/math/elementwise_table.cuh"
#include "millrace/ops/math/unary_ops.h"

namespace millrace {
namespace {

template <class Op, class T>
struct Unary {
  using Out = std::conditional_t<Op::info.predicate, bool, T>;
  const T* x;
  Out* y;
  __device__ __forceinline__ void operator()(int64_t i) const {
    if constexpr (Op::info.predicate) {
      y[i] = Op::eval(widen(x[i]));
    } else {
      y[i] = narrow<T>(Op::eval(widen(x[i])));
    }
  }
};

template <class Op, class T>
struct UnaryLane {
  static constexpr int V = kLaneBytes / sizeof(T);
  const Lane<T, V>* x;
  Lane<T, V>* y;
  __device__ __forceinline__ void operator()(int64_t i) const {
    const Lane<T, V> in = x[i];
    Lane<T, V> out;
#pragma unroll
    for (int k = 0; k < V; ++k) out.v[k] = narrow<T>(Op::eval(widen(in.v[k])));
    y[i] = out;
  }
};

template <class Op, class T>
Status launch_unary(KernelContext& ctx, const void* x, void* y, int64_t n) {
  using F = Unary<Op, T>;
  if constexpr (kInLanes<T> && !Op::info.predicate) {
    using L = UnaryLane<Op, T>;
    using Elements = Lane<T, L::V>;
    if (fits_lanes(n, sizeof(T), x, y)) {
      return for_each(ctx, n / L::V, L{static_cast<const Elements*>(x), static_cast<Elements*>(y)});
    }
  }
  return for_each(ctx, n, F{static_cast<const T*>(x), static_cast<typename F::Out*>(y)});
}

struct MakeUnary {
  template <class Op, class T>
  static LaunchUnary make() {
    return &launch_unary<Op, T>;
  }
};

// Without those that call the host's special functions.
using DeviceUnaryOps =
    OpList<Abs, Acos, Asin, Atan, Ceil, Cos, Elu, Erf, Erfc, Exp, Expm1, Floor, Inv, IsFinite,
           IsInf, IsNan, Log, Log1p, LogicalNot, Neg, Reciprocal, Relu, Relu6, Rint, Round, Rsqrt,
           Selu, Sigmoid, Sign, Sin, Softplus, Softsign, Sqrt, Square, Tan, Tanh>;

}  // namespace

const LaunchTable<LaunchUnary>& unary_launches() {
  static const auto& table = *[] {
    auto* made = new LaunchTable<LaunchUnary>;
    made->add<MakeUnary>(DeviceUnaryOps());
    return made;
  }();
  return table;
}

}  // namespace millrace
