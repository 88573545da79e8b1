// The tables of binary_ops.h and gradient_ops.h on a GPU.

#include "millrace/ops/math/binary_ops.h"
#include "millrace/ops/math/elementwise_table.cuh"
#include "millrace/ops/math/gradient_ops.h"

namespace millrace {
namespace {

template <class Op, class T>
struct Binary {
  using Out = std::conditional_t<Op::info.predicate, bool, T>;
  BroadcastIndex index;
  const T *a, *b;
  Out* z;
  __device__ __forceinline__ void operator()(int64_t i) const {
    int64_t at[2];
    index.find<2>(i, at);
    if constexpr (Op::info.predicate) {
      z[i] = Op::eval(widen(a[at[0]]), widen(b[at[1]]));
    } else {
      z[i] = narrow<T>(Op::eval(widen(a[at[0]]), widen(b[at[1]])));
    }
  }
};

template <class Op, class T>
Status launch_binary(KernelContext& ctx, const BroadcastIndex& index, const void* a, const void* b,
                     void* z, int64_t n) {
  using F = Binary<Op, T>;
  return for_each(ctx, n,
                  F{index, static_cast<const T*>(a), static_cast<const T*>(b),
                    static_cast<typename F::Out*>(z)});
}

struct MakeBinary {
  template <class Op, class T>
  static LaunchBinary make() {
    return &launch_binary<Op, T>;
  }
};

// Without those that call the host's special functions.
using DeviceBinaryOps =
    OpList<Add, AddV2, Div, DivNoNan, Equal, FloorDiv, FloorMod, Greater, GreaterEqual, Less,
           LessEqual, LogicalAnd, LogicalOr, Maximum, Minimum, Mod, Mul, MulNoNan, NotEqual, Pow,
           RealDiv, SquaredDifference, Sub, TruncateDiv, TruncateMod, Xdivy, Xlog1py, Xlogy>;

}  // namespace

const LaunchTable<LaunchBinary>& binary_launches() {
  static const auto& table = *[] {
    auto* made = new LaunchTable<LaunchBinary>;
    made->add<MakeBinary>(DeviceBinaryOps());
    made->add<MakeBinary>(GradientOps());
    return made;
  }();
  return table;
}

}  // namespace millrace
