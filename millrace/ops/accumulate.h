#pragma once

#include <cstdint>
#include <type_traits>

#include "millrace/kernel/kernel.h"
#include "millrace/tensor/half.h"

// What elements are added in. A sum of half or bfloat16 that is rounded after every term stops
// growing after some thousand, or some hundred, of them; so they are added in float, and rounded
// once.

namespace millrace {

// What a kernel computes with elements of T in: float for the two 16-bit types, T itself otherwise.
template <class T>
using ComputeType =
    std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;

// What elements of T are summed in: integers in one without sign, at least 32 bits wide, so that
// sums wrap; others in ComputeType.
template <class T>
using SumType =
    std::conditional_t<std::is_integral_v<T>,
                       std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>, ComputeType<T>>;

// a + b; integers wrap.
template <class T>
T wrapping_add(T a, T b) {
  return static_cast<T>(static_cast<SumType<T>>(a) + static_cast<SumType<T>>(b));
}

// Where a kernel writes ComputeType<T> for output `out` (of T): the output itself, or a temporary.
template <class T>
Result<Tensor> compute_buffer(KernelContext& ctx, const Tensor& out) {
  if constexpr (std::is_same_v<T, ComputeType<T>>) {
    return out;
  } else {
    return ctx.allocate_temp(dtype_of<ComputeType<T>>, out.shape());
  }
}

// Converts what was written to compute_buffer(out).
template <class T>
void finish_output(KernelContext& ctx, const Tensor& computed, Tensor& out) {
  using C = ComputeType<T>;
  if constexpr (!std::is_same_v<T, C>) {
    const C* from = computed.data<C>().data();
    T* to = out.mutable_data<T>().data();
    ctx.parallel_for(out.num_elements(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(from[i]);
    });
  }
}

}  // namespace millrace
