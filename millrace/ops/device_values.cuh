#pragma once

#include "millrace/device/cuda/launch.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/device_engine.h"
#include "millrace/tensor/dispatch.h"
#include "millrace/tensor/half.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

// What sources in CUDA share: element types, and how elements of broadcast tensors are found.

namespace millrace {

// A 16-bit number as a float, everything else as it is.
template <class T>
__host__ __device__ __forceinline__ ComputeType<T> widen(T v) {
  if constexpr (std::is_same_v<T, Half>) {
#if defined(__CUDA_ARCH__)
    return __half2float(__ushort_as_half(v.bits));
#else
    return static_cast<float>(v);
#endif
  } else if constexpr (std::is_same_v<T, BFloat16>) {
#if defined(__CUDA_ARCH__)
    return __uint_as_float(static_cast<unsigned>(v.bits) << 16);
#else
    return static_cast<float>(v);
#endif
  } else {
    return v;
  }
}

template <class T>
__host__ __device__ __forceinline__ T narrow(ComputeType<T> v) {
  if constexpr (std::is_same_v<T, Half>) {
#if defined(__CUDA_ARCH__)
    T out;
    out.bits = __half_as_ushort(__float2half_rn(v));
    return out;
#else
    return Half(v);
#endif
  } else if constexpr (std::is_same_v<T, BFloat16>) {
#if defined(__CUDA_ARCH__)
    T out;
    out.bits = __bfloat16_as_ushort(__float2bfloat16_rn(v));
    return out;
#else
    return BFloat16(v);
#endif
  } else {
    return v;
  }
}

// An element of so many bytes, for what is only moved.
struct alignas(16) Bytes16 {
  uint64_t low, high;
};
template <class F>
Status with_bytes(size_t size, F&& f) {
  switch (size) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    case 8:
      return f.template operator()<uint64_t>();
    case 16:
      return f.template operator()<Bytes16>();
    default:
      return unimplemented("elements of ", size, " bytes");
  }
}

// Elements that a thread reads, or writes, at once.
template <class T, int V>
struct alignas(sizeof(T) * V) Lane {
  T v[V];
};
constexpr size_t kLaneBytes = 16;
// Whether elements there, and `n` of them, can go in lanes of so many bytes.
template <class... P>
bool fits_lanes(int64_t n, size_t size, const P*... data) {
  return n % static_cast<int64_t>(kLaneBytes / size) == 0 &&
         (... && (reinterpret_cast<uintptr_t>(data) % kLaneBytes == 0));
}
// Types of which results are computed in lanes: those that networks are made of.
template <class T>
inline constexpr bool kInLanes =
    std::is_same_v<T, float> || std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

// Where up to three operands have the element that belongs to element i of a broadcast result.
struct BroadcastIndex {
  static constexpr int kMaxRank = 8;
  int rank = 0;  // 0: operand k moves by step[k], 0 or 1
  int64_t step[3] = {};
  int64_t size[kMaxRank] = {};  // innermost first
  int64_t stride[3][kMaxRank] = {};
  bool narrow = false;  // positions fit 32 bits

  // UNIMPLEMENTED where more than kMaxRank dimensions stay apart.
  static Result<BroadcastIndex> make(std::span<const Shape* const> operands, const Shape& shape);

  template <int kOperands>
  __host__ __device__ __forceinline__ void find(int64_t i, int64_t* at) const {
    if (rank == 0) {
      for (int k = 0; k < kOperands; ++k) at[k] = i * step[k];
      return;
    }
    for (int k = 0; k < kOperands; ++k) at[k] = 0;
    if (narrow) {
      auto rest = static_cast<uint32_t>(i);
      for (int d = 0; d < rank; ++d) {
        const auto n = static_cast<uint32_t>(size[d]);
        const uint32_t next = rest / n;
        const uint32_t index = rest - next * n;
        for (int k = 0; k < kOperands; ++k) at[k] += index * stride[k][d];
        rest = next;
      }
      return;
    }
    int64_t rest = i;
    for (int d = 0; d < rank; ++d) {
      const int64_t next = rest / size[d], index = rest - next * size[d];
      for (int k = 0; k < kOperands; ++k) at[k] += index * stride[k][d];
      rest = next;
    }
  }
};

inline Result<BroadcastIndex> BroadcastIndex::make(std::span<const Shape* const> operands,
                                                   const Shape& shape) {
  BroadcastIndex out;
  const size_t count = operands.size();
  out.narrow = shape.num_elements() <= INT32_MAX;
  bool simple = true;
  for (size_t k = 0; k < count; ++k) {
    const bool dense = operands[k]->num_elements() == shape.num_elements();
    const bool one = operands[k]->num_elements() == 1;
    out.step[k] = dense ? 1 : 0;
    simple &= dense || one;
  }
  if (simple) return out;
  int64_t next[3] = {1, 1, 1};
  for (int d = 0; d < shape.rank(); ++d) {
    const int64_t n = shape.dim(shape.rank() - 1 - d);
    if (n == 1) continue;
    int64_t stride[3] = {};
    for (size_t k = 0; k < count; ++k) {
      const int own = operands[k]->rank() - 1 - d;
      const int64_t size = own >= 0 ? operands[k]->dim(own) : 1;
      stride[k] = size == 1 ? 0 : next[k];
      next[k] *= size;
    }
    bool joins = out.rank > 0;
    for (size_t k = 0; joins && k < count; ++k) {
      joins = stride[k] == out.stride[k][out.rank - 1] * out.size[out.rank - 1];
    }
    if (joins) {
      out.size[out.rank - 1] *= n;
      continue;
    }
    if (out.rank == kMaxRank) return unimplemented("broadcasting to ", shape);
    out.size[out.rank] = n;
    for (size_t k = 0; k < count; ++k) out.stride[k][out.rank] = stride[k];
    ++out.rank;
  }
  return out;
}

// The table entries that CUDA computes; those that call functions of the host are left out.
using DeviceRealTypes = TypeList<float, double, Half, BFloat16, int8_t, int16_t, int32_t, int64_t,
                                 uint8_t, uint16_t, uint32_t, uint64_t>;

}  // namespace millrace
