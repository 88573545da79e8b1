#include <cstring>
#include <limits>

#include "millrace/kernel/kernel_call.h"
#include "millrace/ops/array/device_array.cuh"
#include "millrace/ops/math/device_convert.cuh"
#include "millrace/tensor/dispatch.h"

namespace millrace {

Result<uint64_t*> expect_finding(const KernelContext& ctx, UniqueFunction<Status(uint64_t)> say) {
  // The step and the node are there until the stream has passed the work of the run.
  return static_cast<CudaStream*>(ctx.stream())
      ->expect_finding(ctx.step(),
                       [node = &ctx.node(), say = std::move(say)](Step& step, uint64_t at) mutable {
                         step.fail(annotate_error(say(at), *node, 0));
                       });
}

namespace {

template <class T>
struct Select {
  BroadcastIndex index;
  const bool* condition;
  const T *t, *e;
  T* out;
  __device__ __forceinline__ void operator()(int64_t i) const {
    int64_t at[3];
    index.find<3>(i, at);
    out[i] = condition[at[0]] ? t[at[1]] : e[at[2]];
  }
};

template <class From, class To>
struct Cast {
  const From* x;
  To* y;
  uint64_t dropped;  // bits of a double's mantissa
  __device__ __forceinline__ void operator()(int64_t i) const {
    const auto v = widen(x[i]);
    if constexpr (std::is_floating_point_v<ComputeType<From>> && !std::is_integral_v<To>) {
      if (dropped != 0) {
        union {
          double value;
          uint64_t bits;
        } wide;
        wide.value = static_cast<double>(v);
        if (wide.value == wide.value) wide.bits &= ~dropped;
        y[i] = convert<To>(wide.value);
        return;
      }
    }
    y[i] = convert<To>(v);
  }
};

using CastTypes = ConcatTypes<DeviceRealTypes, TypeList<bool>>;

template <class T>
struct AddN {
  static constexpr int kMost = 8;
  const T* inputs[kMost];
  int count;
  T* y;
  __device__ __forceinline__ void operator()(int64_t i) const {
    using S = SumType<T>;
    auto sum = static_cast<S>(widen(inputs[0][i]));
    for (int k = 1; k < count; ++k) sum += static_cast<S>(widen(inputs[k][i]));
    y[i] = narrow<T>(static_cast<ComputeType<T>>(sum));
  }
};

struct CopyDims {
  static constexpr int kMaxRank = 10;
  int rank;
  bool narrow;
  int64_t size[kMaxRank], from[kMaxRank], to[kMaxRank];  // innermost first
};

template <class T>
struct Copy {
  CopyDims dims;
  const T* from;
  T* to;
  __device__ __forceinline__ void operator()(int64_t i) const {
    int64_t f = 0, t = 0;
    if (dims.narrow) {
      auto rest = static_cast<uint32_t>(i);
      for (int d = 0; d < dims.rank; ++d) {
        const auto n = static_cast<uint32_t>(dims.size[d]);
        const uint32_t next = rest / n;
        const uint32_t index = rest - next * n;
        f += index * dims.from[d];
        t += index * dims.to[d];
        rest = next;
      }
    } else {
      int64_t rest = i;
      for (int d = 0; d < dims.rank; ++d) {
        const int64_t next = rest / dims.size[d], index = rest - next * dims.size[d];
        f += index * dims.from[d];
        t += index * dims.to[d];
        rest = next;
      }
    }
    to[t] = from[f];
  }
};

constexpr int kTile = 32, kTileRows = 8;

// Tiles go through shared memory, so that both sides are read and written along rows.
template <class T>
__global__ void __launch_bounds__(kTile* kTileRows)
    transpose_kernel(int64_t n, int64_t a, int64_t b, const T* from, T* to) {
  __shared__ T tile[kTile][kTile + 1];
  const int64_t across = (b + kTile - 1) / kTile, down = (a + kTile - 1) / kTile;
  const int64_t tiles = n * across * down;
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const int64_t image = t / (across * down), rest = t % (across * down);
    const int64_t row = rest / across * kTile, column = rest % across * kTile;
    const T* const x = from + image * a * b;
    T* const y = to + image * a * b;
    for (int r = threadIdx.y; r < kTile; r += blockDim.y) {
      for (int c = threadIdx.x; c < kTile; c += blockDim.x) {
        if (row + r < a && column + c < b) tile[r][c] = x[(row + r) * b + column + c];
      }
    }
    __syncthreads();
    for (int r = threadIdx.y; r < kTile; r += blockDim.y) {
      for (int c = threadIdx.x; c < kTile; c += blockDim.x) {
        if (column + r < b && row + c < a) y[(column + r) * a + row + c] = tile[c][r];
      }
    }
    __syncthreads();
  }
}

template <class T>
struct Fill {
  T value;
  const T* place;  // of the value, where it is not null
  T* to;
  __device__ __forceinline__ void operator()(int64_t i) const {
    to[i] = place != nullptr ? *place : value;
  }
};

template <class T>
struct Range {
  double start, delta;
  int64_t int_start, int_delta;
  T* to;
  __device__ __forceinline__ void operator()(int64_t i) const {
    if constexpr (std::is_integral_v<T>) {
      to[i] = static_cast<T>(static_cast<uint64_t>(int_start) +
                             static_cast<uint64_t>(i) * static_cast<uint64_t>(int_delta));
    } else {
      using C = ComputeType<T>;
      to[i] = narrow<T>(static_cast<C>(start) + static_cast<C>(i) * static_cast<C>(delta));
    }
  }
};

template <class T, class I>
struct Gather {
  int64_t outer, size, count, run;
  const T* from;
  const I* indices;
  T* to;
  uint64_t* bad;
  __device__ __forceinline__ void operator()(int64_t i) const {
    const int64_t unit = i / run, column = i - unit * run;
    const int64_t row = unit / count, k = unit - row * count;
    const int64_t at = row / outer * count + k;
    const auto index = static_cast<int64_t>(indices[at]);
    if (index < 0 || index >= size) {
      report_finding(bad, static_cast<uint64_t>(at));
      to[i] = T{};
      return;
    }
    to[i] = from[(row * size + index) * run + column];
  }
};

enum class Combine : uint8_t { kReplace, kAdd, kSub, kMul, kDiv, kMin, kMax };

template <class T>
__host__ __device__ __forceinline__ T combine(Combine how, T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return b;
  } else {
    using C = ComputeType<T>;
    const C x = widen(a), y = widen(b);
    if constexpr (std::is_integral_v<C>) {
      using S = SumType<C>;
      switch (how) {
        case Combine::kReplace:
          return b;
        case Combine::kAdd:
          return static_cast<T>(static_cast<S>(x) + static_cast<S>(y));
        case Combine::kSub:
          return static_cast<T>(static_cast<S>(x) - static_cast<S>(y));
        case Combine::kMul:
          return static_cast<T>(static_cast<S>(x) * static_cast<S>(y));
        case Combine::kDiv:
          if constexpr (std::is_signed_v<C>) {
            if (y == C(-1)) return static_cast<T>(S{0} - static_cast<S>(x));
          }
          return y == 0 ? T(0) : static_cast<T>(x / y);
        case Combine::kMin:
          return x < y ? a : b;
        case Combine::kMax:
          return x > y ? a : b;
      }
      return b;
    } else {
      switch (how) {
        case Combine::kReplace:
          return b;
        case Combine::kAdd:
          return narrow<T>(x + y);
        case Combine::kSub:
          return narrow<T>(x - y);
        case Combine::kMul:
          return narrow<T>(x * y);
        case Combine::kDiv:
          return narrow<T>(x / y);
        case Combine::kMin:
          return x != x || x < y ? a : b;
        case Combine::kMax:
          return x != x || x > y ? a : b;
      }
      return b;
    }
  }
}

// Element i: column i % run, for the rows whose numbers leave i / run when divided by `groups`. So
// each element of the target belongs to one thread, which takes the updates in order.
template <class T, class I>
struct Scatter {
  Combine how;
  int64_t count, run, groups, limit;
  const T* from;
  int64_t step;  // 0: one row serves all
  const I* indices;
  T* to;
  uint64_t* bad;
  bool skip;
  __device__ __forceinline__ void operator()(int64_t i) const {
    const int64_t group = i / run, column = i - group * run;
    for (int64_t k = 0; k < count; ++k) {
      const auto row = static_cast<int64_t>(indices[k]);
      if (row < 0 || row >= limit) {
        if (!skip && i == 0) report_finding(bad, static_cast<uint64_t>(k));
        continue;
      }
      if (row % groups != group) continue;
      T& place = to[row * run + column];
      place = combine(how, place, from[k * step + column]);
    }
  }
};

template <class T, class I>
struct OneHot {
  int64_t depth, inner;
  const I* indices;
  const T *on, *off;
  T* out;
  __device__ __forceinline__ void operator()(int64_t i) const {
    const int64_t column = i % inner, rest = i / inner;
    const int64_t d = rest % depth, row = rest / depth;
    out[i] = static_cast<int64_t>(indices[row * inner + column]) == d ? *on : *off;
  }
};

// Block number `block` of the stream; see Philox.
struct PhiloxBlock {
  uint32_t w[4];
};
__host__ __device__ __forceinline__ PhiloxBlock philox(uint64_t key, uint64_t low, uint64_t high,
                                                       uint64_t block) {
  const uint64_t counter = low + block;
  if (counter < block) ++high;
  uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
  uint32_t c2 = static_cast<uint32_t>(high), c3 = static_cast<uint32_t>(high >> 32);
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c0, p1 = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
  }
  return {{c0, c1, c2, c3}};
}

__host__ __device__ __forceinline__ float uniform(uint32_t x) {
  union {
    uint32_t bits;
    float value;
  } u;
  u.bits = (uint32_t{127} << 23) | (x & 0x7fffff);
  return u.value - 1.0F;
}
__host__ __device__ __forceinline__ double uniform(uint32_t high, uint32_t low) {
  union {
    uint64_t bits;
    double value;
  } u;
  u.bits = (uint64_t{1023} << 52) | (uint64_t{high & 0xfffff} << 32) | low;
  return u.value - 1.0;
}
constexpr double kTwoPi = 6.283185307179586;
__host__ __device__ __forceinline__ void normal_pair(uint32_t x0, uint32_t x1, float* out) {
  const float v = uniform(x0), u = v > 1.0e-7F ? v : 1.0e-7F;
  const auto angle = static_cast<float>(kTwoPi * uniform(x1));
  const float radius = sqrtf(-2.0F * logf(u));
  out[0] = sinf(angle) * radius;
  out[1] = cosf(angle) * radius;
}
__host__ __device__ __forceinline__ void normal_pair(const uint32_t* w, double* out) {
  const double v = uniform(w[0], w[1]), u = v > 1.0e-7 ? v : 1.0e-7;
  const double angle = kTwoPi * uniform(w[2], w[3]), radius = sqrt(-2.0 * log(u));
  out[0] = sin(angle) * radius;
  out[1] = cos(angle) * radius;
}

struct RandomStream {
  uint64_t key, low, high;
};

// Group i of elements: those that one block of the stream makes.
template <class T, bool kNormal>
struct RandomGroup {
  static constexpr int kSize = std::is_same_v<T, double> ? 2 : 4;
  RandomStream stream;
  T* y;
  int64_t n;
  __device__ __forceinline__ void operator()(int64_t i) const {
    const PhiloxBlock b = philox(stream.key, stream.low, stream.high, static_cast<uint64_t>(i));
    T made[kSize];
    if constexpr (std::is_same_v<T, double>) {
      if constexpr (kNormal) {
        normal_pair(b.w, made);
      } else {
        made[0] = uniform(b.w[0], b.w[1]);
        made[1] = uniform(b.w[2], b.w[3]);
      }
    } else if constexpr (kNormal) {
      float pairs[4];
      normal_pair(b.w[0], b.w[1], pairs);
      normal_pair(b.w[2], b.w[3], pairs + 2);
      for (int k = 0; k < 4; ++k) made[k] = narrow<T>(pairs[k]);
    } else {
      for (int k = 0; k < 4; ++k) {
        if constexpr (std::is_same_v<T, float>) {
          made[k] = uniform(b.w[k]);
        } else {
          constexpr int kBits = std::is_same_v<T, Half> ? 10 : 7;
          constexpr int kBias = std::is_same_v<T, Half> ? 15 : 127;
          T one;
          one.bits = static_cast<uint16_t>((kBias << kBits) | (b.w[k] & ((1 << kBits) - 1)));
          made[k] = narrow<T>(widen(one) - 1.0F);
        }
      }
    }
    for (int k = 0; k < kSize && i * kSize + k < n; ++k) y[i * kSize + k] = made[k];
  }
};

// Numbers beyond two deviations are drawn again, from the group's own part of the stream.
template <class T>
struct TruncatedGroup {
  static constexpr bool kDouble = std::is_same_v<T, double>;
  static constexpr int kSize = kDouble ? 2 : 4;
  static constexpr uint64_t kBlocks = kDouble ? 128 : 256;
  RandomStream stream;
  T* y;
  int64_t n;
  __device__ __forceinline__ void operator()(int64_t i) const {
    const int64_t first = i * kSize;
    const int64_t wanted = n - first < kSize ? n - first : kSize;
    uint64_t block = static_cast<uint64_t>(i) * kBlocks;
    for (int64_t kept = 0; kept < wanted; ++block) {
      const PhiloxBlock b = philox(stream.key, stream.low, stream.high, block);
      for (int half = 0; half < (kDouble ? 1 : 2); ++half) {
        ComputeType<T> pair[2];
        if constexpr (kDouble) {
          normal_pair(b.w, pair);
        } else {
          normal_pair(b.w[2 * half], b.w[2 * half + 1], pair);
        }
        for (int k = 0; k < 2 && kept < wanted; ++k) {
          if (pair[k] < 2 && pair[k] > -2) y[first + kept++] = narrow<T>(pair[k]);
        }
      }
    }
  }
};

template <class T>
Status random_typed(KernelContext& ctx, DeviceEngine::Distribution kind, const RandomStream& stream,
                    T* y, int64_t n) {
  constexpr int kSize = std::is_same_v<T, double> ? 2 : 4;
  const int64_t groups = (n + kSize - 1) / kSize;
  switch (kind) {
    case DeviceEngine::Distribution::kUniform:
      return for_each(ctx, groups, RandomGroup<T, false>{stream, y, n});
    case DeviceEngine::Distribution::kNormal:
      return for_each(ctx, groups, RandomGroup<T, true>{stream, y, n});
    case DeviceEngine::Distribution::kTruncatedNormal:
      return for_each(ctx, groups, TruncatedGroup<T>{stream, y, n});
  }
  return ok_status();
}

Combine combine_of(std::string_view op) {
  if (op == "Add") return Combine::kAdd;
  if (op == "Sub") return Combine::kSub;
  if (op == "Mul") return Combine::kMul;
  if (op == "Div") return Combine::kDiv;
  if (op == "Minimum") return Combine::kMin;
  if (op == "Maximum") return Combine::kMax;
  return Combine::kReplace;
}

template <class T>
Status scatter_typed(KernelContext& ctx, Combine how, DType index, int64_t count, int64_t run,
                     const void* from, bool one_row, const void* indices,
                     DeviceEngine::IndexCheck check, uint64_t* bad, void* to) {
  constexpr int64_t kWanted = 1 << 16;
  const int64_t groups = std::max<int64_t>(1, std::min<int64_t>(1024, kWanted / run));
  return dispatch<IndexTypes>(index, [&]<class I>() -> Status {
    return for_each(ctx, groups * run,
                    Scatter<T, I>{how, count, run, groups, check.limit, static_cast<const T*>(from),
                                  one_row ? 0 : run, static_cast<const I*>(indices),
                                  static_cast<T*>(to), bad, check.skip});
  });
}

}  // namespace

Status device_select(KernelContext& ctx, size_t size, const BroadcastIndex& index,
                     const void* condition, const void* t, const void* e, void* out, int64_t n) {
  return with_bytes(size, [&]<class T>() {
    return for_each(ctx, n,
                    Select<T>{index, static_cast<const bool*>(condition), static_cast<const T*>(t),
                              static_cast<const T*>(e), static_cast<T*>(out)});
  });
}

Status device_cast(KernelContext& ctx, DType from, DType to, bool truncate, const void* x, void* y,
                   int64_t n) {
  const int bits = to == DType::kFloat      ? 23
                   : to == DType::kHalf     ? 10
                   : to == DType::kBFloat16 ? 7
                                            : 52;
  const uint64_t dropped =
      truncate && bits != 52 && kFloating.contains(from) ? (uint64_t{1} << (52 - bits)) - 1 : 0;
  return dispatch<CastTypes>(from, [&]<class From>() -> Status {
    return dispatch<CastTypes>(to, [&]<class To>() -> Status {
      return for_each(ctx, n,
                      Cast<From, To>{static_cast<const From*>(x), static_cast<To*>(y), dropped});
    });
  });
}

Status device_add_n(KernelContext& ctx, DType dtype, std::span<const void* const> inputs, void* y,
                    int64_t n) {
  return dispatch<DeviceRealTypes>(dtype, [&]<class T>() -> Status {
    AddN<T> sum = {};
    sum.y = static_cast<T*>(y);
    size_t next = 0;
    while (next < inputs.size()) {
      sum.count = 0;
      if (next > 0) sum.inputs[sum.count++] = sum.y;
      while (next < inputs.size() && sum.count < AddN<T>::kMost) {
        sum.inputs[sum.count++] = static_cast<const T*>(inputs[next++]);
      }
      MR_TRY(for_each(ctx, n, sum));
    }
    return ok_status();
  });
}

Status device_transpose(const KernelContext& ctx, size_t size, int64_t n, int64_t a, int64_t b,
                        const void* from, void* to) {
  return with_bytes(size, [&]<class T>() -> Status {
    const int64_t tiles = n * ((a + kTile - 1) / kTile) * ((b + kTile - 1) / kTile);
    return launch(ctx, &transpose_kernel<T>, blocks_for(tiles, 1), dim3(kTile, kTileRows), n, a, b,
                  static_cast<const T*>(from), static_cast<T*>(to));
  });
}

Status device_strided_copy(const KernelContext& ctx, size_t size, std::span<const int64_t[3]> dims,
                           const void* from, void* to) {
  CopyDims copy = {};
  int64_t n = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (copy.rank == CopyDims::kMaxRank) return unimplemented("a copy of so many dimensions");
    copy.size[copy.rank] = dims[i][0];
    copy.from[copy.rank] = dims[i][1];
    copy.to[copy.rank++] = dims[i][2];
    n *= dims[i][0];
  }
  if (n == 0) return ok_status();
  if (copy.rank == 0 || (copy.rank == 1 && copy.from[0] == 1 && copy.to[0] == 1)) {
    MR_TRY_ASSIGN(cudaStream_t stream, cuda_stream(ctx));
    MR_CUDA_TRY(
        cudaMemcpyAsync(to, from, static_cast<size_t>(n) * size, cudaMemcpyDeviceToDevice, stream));
    return ok_status();
  }
  // Matrices that are transposed: [images, b, a] in the target, [images, a, b] in the source.
  const int64_t a = copy.size[0], b = copy.size[1];
  const bool swaps = copy.rank >= 2 && copy.to[0] == 1 && copy.to[1] == a && copy.from[1] == 1 &&
                     copy.from[0] == b;
  if (swaps &&
      (copy.rank == 2 || (copy.rank == 3 && copy.from[2] == a * b && copy.to[2] == a * b))) {
    return device_transpose(ctx, size, copy.rank == 2 ? 1 : copy.size[2], a, b, from, to);
  }
  copy.narrow = n <= INT32_MAX;
  return with_bytes(size, [&]<class T>() {
    return for_each(ctx, n, Copy<T>{copy, static_cast<const T*>(from), static_cast<T*>(to)});
  });
}

Status device_fill(const KernelContext& ctx, size_t size, const void* value, bool host, void* to,
                   int64_t n) {
  if (n == 0) return ok_status();
  if (host) {
    const auto* bytes = static_cast<const unsigned char*>(value);
    bool zero = true;
    for (size_t i = 0; i < size; ++i) zero &= bytes[i] == 0;
    if (zero || size == 1) {
      MR_TRY_ASSIGN(cudaStream_t stream, cuda_stream(ctx));
      MR_CUDA_TRY(cudaMemsetAsync(to, bytes[0], static_cast<size_t>(n) * size, stream));
      return ok_status();
    }
  }
  return with_bytes(size, [&]<class T>() {
    Fill<T> fill = {};
    fill.to = static_cast<T*>(to);
    if (host) {
      std::memcpy(&fill.value, value, sizeof(T));
    } else {
      fill.place = static_cast<const T*>(value);
    }
    return for_each(ctx, n, fill);
  });
}

Status device_range(KernelContext& ctx, DType dtype, double start, double delta, int64_t int_start,
                    int64_t int_delta, void* to, int64_t n) {
  using Types = TypeList<float, double, int32_t, int64_t, Half, BFloat16>;
  return dispatch<Types>(dtype, [&]<class T>() -> Status {
    return for_each(ctx, n, Range<T>{start, delta, int_start, int_delta, static_cast<T*>(to)});
  });
}

Status device_gather(KernelContext& ctx, size_t size, DType index, int64_t batch, int64_t outer,
                     int64_t count, int64_t run, const void* from, const void* indices,
                     DeviceEngine::IndexCheck check, void* out) {
  const int64_t n = batch * outer * count * run;
  if (batch * outer * count == 0) return ok_status();
  MR_TRY_ASSIGN(uint64_t* const bad, expect_finding(ctx, [check](uint64_t at) {
                  return invalid_argument(check.what, "[", at, "] is not in [0, ", check.limit,
                                          ")");
                }));
  return dispatch<IndexTypes>(index, [&]<class I>() -> Status {
    return with_bytes(size, [&]<class T>() {
      return for_each(ctx, n,
                      Gather<T, I>{outer, check.limit, count, run, static_cast<const T*>(from),
                                   static_cast<const I*>(indices), static_cast<T*>(out), bad});
    });
  });
}

Status device_scatter(KernelContext& ctx, std::string_view op, DType dtype, DType index,
                      int64_t count, int64_t run, const void* from, bool one_row,
                      const void* indices, DeviceEngine::IndexCheck check, void* to) {
  if (count == 0 || run == 0) return ok_status();
  const Combine how = combine_of(op);
  MR_TRY_ASSIGN(uint64_t* const bad, expect_finding(ctx, [check](uint64_t at) {
                  return invalid_argument(check.what, "[", at, "] is not in [0, ", check.limit,
                                          ")");
                }));
  if (how == Combine::kReplace) {
    return with_bytes(dtype_size(dtype), [&]<class T>() -> Status {
      if constexpr (std::is_same_v<T, Bytes16>) {
        return unimplemented("updates of ", dtype);
      } else {
        return scatter_typed<T>(ctx, how, index, count, run, from, one_row, indices, check, bad,
                                to);
      }
    });
  }
  return dispatch<DeviceRealTypes>(dtype, [&]<class T>() -> Status {
    return scatter_typed<T>(ctx, how, index, count, run, from, one_row, indices, check, bad, to);
  });
}

Status device_one_hot(KernelContext& ctx, size_t size, DType index, const void* indices,
                      int64_t outer, int64_t depth, int64_t inner, const void* on, const void* off,
                      void* out) {
  using Types = TypeList<uint8_t, int8_t, int32_t, int64_t>;
  return dispatch<Types>(index, [&]<class I>() -> Status {
    return with_bytes(size, [&]<class T>() {
      return for_each(
          ctx, outer * depth * inner,
          OneHot<T, I>{depth, inner, static_cast<const I*>(indices), static_cast<const T*>(on),
                       static_cast<const T*>(off), static_cast<T*>(out)});
    });
  });
}

Status device_random(KernelContext& ctx, DeviceEngine::Distribution kind, DType dtype,
                     const uint64_t* place, void* y, int64_t n) {
  const RandomStream stream = {place[0], place[1], place[2]};
  return dispatch<FloatingTypes>(dtype, [&]<class T>() -> Status {
    return random_typed<T>(ctx, kind, stream, static_cast<T*>(y), n);
  });
}

}  // namespace millrace
