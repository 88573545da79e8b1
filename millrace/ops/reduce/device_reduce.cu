#include <limits>

#include "millrace/ops/reduce/device_reduce.cuh"

namespace millrace {
namespace {

enum class Fold : uint8_t { kSum, kProd, kMax, kMin, kSquares };
// What is done to a finished fold.
enum class Finish : uint8_t { kNothing, kMean, kHalf };

// What elements of T are folded in.
template <class T>
using Folded = std::conditional_t<std::is_floating_point_v<ComputeType<T>>, ComputeType<T>,
                                  std::conditional_t<std::is_unsigned_v<T>, uint64_t, int64_t>>;

template <Fold fold, class A>
__device__ __forceinline__ A start() {
  if constexpr (fold == Fold::kSum || fold == Fold::kSquares) {
    return A(0);
  } else if constexpr (fold == Fold::kProd) {
    return A(1);
  } else if constexpr (std::is_floating_point_v<A>) {
    constexpr A kInf = static_cast<A>(__builtin_huge_val());
    return fold == Fold::kMax ? -kInf : kInf;
  } else if constexpr (std::is_unsigned_v<A>) {
    return fold == Fold::kMax ? A(0) : ~A(0);
  } else {
    constexpr A kTop = static_cast<A>(~(uint64_t{1} << 63));
    return fold == Fold::kMax ? -kTop - 1 : kTop;
  }
}

// NaN wins a maximum and a minimum; integers wrap.
template <Fold fold, class A>
__device__ __forceinline__ A join(A a, A b) {
  if constexpr (fold == Fold::kSum || fold == Fold::kSquares) {
    if constexpr (std::is_integral_v<A>) {
      return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    } else {
      return a + b;
    }
  } else if constexpr (fold == Fold::kProd) {
    if constexpr (std::is_integral_v<A>) {
      return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    } else {
      return a * b;
    }
  } else if constexpr (fold == Fold::kMax) {
    return a != a || a > b ? a : b;
  } else {
    return a != a || a < b ? a : b;
  }
}

// Where elements lie: kept and reduced dimensions, innermost first.
struct FoldPlaces {
  static constexpr int kMaxRank = 8;
  struct Dims {
    int rank = 0;
    int64_t count = 1;
    int64_t size[kMaxRank] = {}, stride[kMaxRank] = {};
    __device__ __forceinline__ int64_t at(int64_t i) const {
      if (rank == 1) return i * stride[0];
      int64_t place = 0;
      for (int d = 0; d < rank; ++d) {
        const int64_t next = i / size[d];
        place += (i - next * size[d]) * stride[d];
        i = next;
      }
      return place;
    }
  };
  Dims kept, reduced;
};

constexpr int kFoldThreads = 256;

// Block (x, y): results side by side along x, each folded by the threads along y; the reduced
// elements are cut into gridDim.y parts, which have results of their own. Who folds what follows
// from the sizes of the grid alone.
template <Fold fold, class T, class A, class Out>
__global__ void __launch_bounds__(kFoldThreads)
    fold_kernel(FoldPlaces places, const T* x, int64_t part, Finish finish, Out* y) {
  __shared__ A shared[kFoldThreads];
  const int64_t outputs = places.kept.count, reduced = places.reduced.count;
  const int64_t begin = blockIdx.y * part;
  const int64_t end = begin + part < reduced ? begin + part : reduced;
  const int64_t tiles = (outputs + blockDim.x - 1) / blockDim.x;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t output = tile * blockDim.x + threadIdx.x;
    A sum = start<fold, A>();
    if (output < outputs) {
      const T* const from = x + places.kept.at(output);
      for (int64_t r = begin + threadIdx.y; r < end; r += blockDim.y) {
        const A v = static_cast<A>(widen(from[places.reduced.at(r)]));
        sum = join<fold>(sum, fold == Fold::kSquares ? v * v : v);
      }
    }
    shared[threadIdx.y * blockDim.x + threadIdx.x] = sum;
    __syncthreads();
    for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
      if (threadIdx.y < half) {
        A& mine = shared[threadIdx.y * blockDim.x + threadIdx.x];
        mine = join<fold>(mine, shared[(threadIdx.y + half) * blockDim.x + threadIdx.x]);
      }
      __syncthreads();
    }
    if (threadIdx.y == 0 && output < outputs) {
      A all = shared[threadIdx.x];
      if (finish == Finish::kMean) all = all / static_cast<A>(reduced);
      if constexpr (std::is_same_v<Out, A>) {
        if (finish == Finish::kHalf) all = all / A(2);
        y[blockIdx.y * outputs + output] = all;
      } else if constexpr (std::is_integral_v<Out>) {
        y[blockIdx.y * outputs + output] = finish == Finish::kHalf
                                               ? static_cast<Out>(static_cast<Out>(all) / 2)
                                               : static_cast<Out>(all);
      } else {
        if (finish == Finish::kHalf) all = all / A(2);
        y[blockIdx.y * outputs + output] = narrow<Out>(all);
      }
    }
    __syncthreads();
  }
}

// The second pass: `parts` results for each output, a mean of `count`.
template <Fold fold, class A, class T>
struct JoinParts {
  const A* parts;
  int64_t outputs, count;
  int num_parts;
  Finish finish;
  T* y;
  __device__ __forceinline__ void operator()(int64_t i) const {
    A all = parts[i];
    for (int p = 1; p < num_parts; ++p) all = join<fold>(all, parts[p * outputs + i]);
    if (finish == Finish::kMean) all = all / static_cast<A>(count);
    if constexpr (std::is_integral_v<T>) {
      y[i] =
          finish == Finish::kHalf ? static_cast<T>(static_cast<T>(all) / 2) : static_cast<T>(all);
    } else {
      if (finish == Finish::kHalf) all = all / A(2);
      y[i] = narrow<T>(all);
    }
  }
};

template <Fold fold, class T>
Status fold_typed(KernelContext& ctx, const FoldPlaces& places, Finish finish, const void* x,
                  void* y) {
  using A = Folded<T>;
  const int64_t outputs = places.kept.count, reduced = places.reduced.count;
  // Threads that lie side by side read elements that do: results where the innermost dimension is
  // kept, else elements of one result.
  const bool along_reduced = places.reduced.rank > 0 && places.reduced.stride[0] == 1;
  unsigned across = along_reduced ? 1 : 32;
  if (along_reduced) {
    while (across < 32 && static_cast<int64_t>(kFoldThreads / across) > 2 * reduced) across *= 2;
  }
  const dim3 block(across, kFoldThreads / across);
  const int64_t tiles = (outputs + across - 1) / across;
  constexpr int64_t kWantedBlocks = 264, kMostParts = 256;
  const int64_t rounds = (reduced + block.y * 4 - 1) / (block.y * 4);
  int64_t parts = std::min({rounds, (kWantedBlocks + tiles - 1) / tiles, kMostParts});
  const int64_t part = (reduced + parts - 1) / parts;
  parts = (reduced + part - 1) / part;
  const dim3 grid(blocks_for(tiles, 1), static_cast<unsigned>(parts));
  const T* const from = static_cast<const T*>(x);
  if (parts == 1) {
    return launch(ctx, &fold_kernel<fold, T, A, T>, grid, block, places, from, part, finish,
                  static_cast<T*>(y));
  }
  MR_TRY_ASSIGN(Tensor partial, ctx.allocate_temp(dtype_of<A>, Shape{parts, outputs}));
  A* const sums = static_cast<A*>(partial.mutable_raw());
  MR_TRY(launch(ctx, &fold_kernel<fold, T, A, A>, grid, block, places, from, part, Finish::kNothing,
                sums));
  return for_each(ctx, outputs,
                  JoinParts<fold, A, T>{sums, outputs, reduced, static_cast<int>(parts), finish,
                                        static_cast<T*>(y)});
}

template <class T, class Index>
struct ArgReduce {
  bool largest;
  int64_t n, inner;
  const T* x;
  Index* y;
  __device__ __forceinline__ void operator()(int64_t i) const {
    const int64_t row = i / inner;
    const T* const from = x + row * n * inner + (i - row * inner);
    // NaN is never preferred.
    bool any = false;
    ComputeType<T> best{};
    int64_t at = 0;
    for (int64_t k = 0; k < n; ++k) {
      const ComputeType<T> v = widen(from[k * inner]);
      const bool better = any ? (largest ? v > best : v < best) : v == v;
      if (!better) continue;
      any = true;
      best = v;
      at = k;
    }
    y[i] = static_cast<Index>(at);
  }
};

}  // namespace

Status device_reduce(KernelContext& ctx, DeviceEngine::Reduction kind, DType dtype, const void* x,
                     DeviceEngine::FoldDims dims, void* y) {
  FoldPlaces places;
  int64_t stride = 1;
  for (size_t i = dims.sizes.size(); i-- > 0;) {
    const bool reduced = (i % 2 == 0) == dims.first_reduced;
    FoldPlaces::Dims& to = reduced ? places.reduced : places.kept;
    if (to.rank == FoldPlaces::kMaxRank) return unimplemented("a reduction of so many dimensions");
    to.size[to.rank] = dims.sizes[i];
    to.stride[to.rank++] = stride;
    to.count *= dims.sizes[i];
    stride *= dims.sizes[i];
  }
  using Reduction = DeviceEngine::Reduction;
  const Finish finish = kind == Reduction::kMean ? Finish::kMean : Finish::kNothing;
  using Types = ConcatTypes<DeviceRealTypes, TypeList<bool>>;
  return dispatch<Types>(dtype, [&]<class T>() -> Status {
    switch (kind) {
      case Reduction::kSum:
      case Reduction::kMean:
        if constexpr (std::is_same_v<T, bool>) {
          return unimplemented("a sum of truth values");
        } else {
          return fold_typed<Fold::kSum, T>(ctx, places, finish, x, y);
        }
      case Reduction::kProd:
        if constexpr (std::is_same_v<T, bool>) {
          return unimplemented("a product of truth values");
        } else {
          return fold_typed<Fold::kProd, T>(ctx, places, finish, x, y);
        }
      case Reduction::kMax:
        return fold_typed<Fold::kMax, T>(ctx, places, finish, x, y);
      case Reduction::kMin:
        return fold_typed<Fold::kMin, T>(ctx, places, finish, x, y);
    }
    return ok_status();
  });
}

Status device_l2_loss(KernelContext& ctx, DType dtype, const void* x, int64_t n, void* y) {
  return dispatch<DeviceRealTypes>(dtype, [&]<class T>() -> Status {
    if (n == 0) {
      MR_TRY_ASSIGN(cudaStream_t stream, cuda_stream(ctx));
      MR_CUDA_TRY(cudaMemsetAsync(y, 0, sizeof(T), stream));
      return ok_status();
    }
    FoldPlaces places;
    places.reduced.rank = 1;
    places.reduced.count = places.reduced.size[0] = n;
    places.reduced.stride[0] = 1;
    return fold_typed<Fold::kSquares, T>(ctx, places, Finish::kHalf, x, y);
  });
}

Status device_arg_reduce(KernelContext& ctx, bool largest, DType dtype, DType index, const void* x,
                         int64_t outer, int64_t n, int64_t inner, void* y) {
  return dispatch<DeviceRealTypes>(dtype, [&]<class T>() -> Status {
    return dispatch<IndexTypes>(index, [&]<class Index>() -> Status {
      return for_each(
          ctx, outer * inner,
          ArgReduce<T, Index>{largest, n, inner, static_cast<const T*>(x), static_cast<Index*>(y)});
    });
  });
}

}  // namespace millrace
