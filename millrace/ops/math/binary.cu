// The tables of binary_ops.h and gradient_ops.h on a GPU.

#include <optional>

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

// How an operand goes along with the lanes of the result: each with its own, the same lanes for
// each row of them, or one element for all.
enum class Along : uint8_t { kOwn, kRows, kOne };

template <class Op, class T>
struct BinaryLane {
  static constexpr int V = kLaneBytes / sizeof(T);
  using Elements = Lane<T, V>;
  uint32_t row;  // in lanes
  Along along_a, along_b;
  const void *a, *b;
  Elements* z;

  __device__ __forceinline__ Elements read(Along along, const void* from, int64_t i) const {
    if (along == Along::kOne) {
      const T one = *static_cast<const T*>(from);
      Elements out;
#pragma unroll
      for (int k = 0; k < V; ++k) out.v[k] = one;
      return out;
    }
    return static_cast<const Elements*>(
        from)[along == Along::kOwn ? i : static_cast<int64_t>(static_cast<uint32_t>(i) % row)];
  }
  __device__ __forceinline__ void operator()(int64_t i) const {
    const Elements x = read(along_a, a, i), y = read(along_b, b, i);
    Elements out;
#pragma unroll
    for (int k = 0; k < V; ++k) out.v[k] = narrow<T>(Op::eval(widen(x.v[k]), widen(y.v[k])));
    z[i] = out;
  }
};

// False where the operand goes along in another way.
bool find_along(const BroadcastIndex& index, int operand, Along& along) {
  const int64_t* const stride = index.stride[operand];
  if (index.rank == 0) {
    along = index.step[operand] == 1 ? Along::kOwn : Along::kOne;
  } else if (stride[0] == 1 && stride[1] == index.size[0]) {
    along = Along::kOwn;
  } else if (stride[0] == 1 && stride[1] == 0) {
    along = Along::kRows;
  } else if (stride[0] == 0 && stride[1] == 0) {
    along = Along::kOne;
  } else {
    return false;
  }
  return true;
}

// Unset where elements cannot go in lanes.
template <class Op, class T>
std::optional<BinaryLane<Op, T>> in_lanes(const BroadcastIndex& index, const void* a, const void* b,
                                          void* z, int64_t n) {
  using L = BinaryLane<Op, T>;
  L lanes = {.row = 1, .a = a, .b = b, .z = static_cast<typename L::Elements*>(z)};
  if (index.rank != 0 && (index.rank != 2 || !index.narrow)) return std::nullopt;
  if (index.rank == 2) lanes.row = static_cast<uint32_t>(index.size[0] / L::V);
  if (!find_along(index, 0, lanes.along_a) || !find_along(index, 1, lanes.along_b)) {
    return std::nullopt;
  }
  const auto data = [&](Along along, const void* from) { return along == Along::kOne ? z : from; };
  const int64_t rows_of = index.rank == 2 ? index.size[0] : n;
  const bool fits = n % L::V == 0 && fits_lanes(rows_of, sizeof(T), data(lanes.along_a, a),
                                                data(lanes.along_b, b), z);
  return fits ? std::optional(lanes) : std::nullopt;
}

template <class Op, class T>
Status launch_binary(KernelContext& ctx, const BroadcastIndex& index, const void* a, const void* b,
                     void* z, int64_t n) {
  using F = Binary<Op, T>;
  if constexpr (kInLanes<T> && !Op::info.predicate) {
    using L = BinaryLane<Op, T>;
    if (const std::optional<L> lanes = in_lanes<Op, T>(index, a, b, z, n)) {
      return for_each(ctx, n / L::V, *lanes);
    }
  }
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
