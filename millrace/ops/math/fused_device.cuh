#pragma once

#include "millrace/ops/math/binary_ops.h"
#include "millrace/ops/math/device_convert.cuh"
#include "millrace/ops/math/gradient_ops.h"
#include "millrace/ops/math/unary_ops.h"

// What the sources of fused_source.h are written with. NVRTC gets this and what it includes as they
// stand here, but for a few headers of the host, which stand_ins.cuh has instead.

namespace millrace {

// kCount elements that lie behind each other, moved at once.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T at[kCount];
};

template <int kCount, class T, class Index>
__device__ __forceinline__ Pack<T, kCount> load(const T* x, Index i) {
  return *reinterpret_cast<const Pack<T, kCount>*>(x + i);
}
template <class T, int kCount, class Index>
__device__ __forceinline__ void store(T* y, Index i, const Pack<T, kCount>& values) {
  *reinterpret_cast<Pack<T, kCount>*>(y + i) = values;
}

// `v` as it would come back from memory that holds T.
template <class T, class V>
__device__ __forceinline__ auto rounded(V v) {
  return widen(narrow<T>(v));
}
template <class T, class V>
__device__ __forceinline__ auto converted(V v) {
  return widen(convert<T>(v));
}

}  // namespace millrace
