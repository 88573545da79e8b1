#pragma once

#include <type_traits>

#include "millrace/kernel/kernel.h"
#include "millrace/tensor/half.h"

// Row-wise kernels compute in float or double; tensors of half precision are converted on the way
// in and out.

namespace millrace {

template <class T>
using ComputeType = std::conditional_t<std::is_same_v<T, double>, double, float>;

// `tensor` (of T) as ComputeType<T>: itself, or a converted copy.
template <class T>
Result<Tensor> as_compute_type(KernelContext& ctx, const Tensor& tensor) {
  using C = ComputeType<T>;
  if constexpr (std::is_same_v<T, C>) {
    return tensor;
  } else {
    MR_TRY_ASSIGN(Tensor copy, ctx.allocate_temp(dtype_of<C>, tensor.shape()));
    const T* from = tensor.data<T>().data();
    C* to = copy.mutable_data<C>().data();
    ctx.parallel_for(tensor.num_elements(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = static_cast<C>(from[i]);
    });
    return copy;
  }
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
