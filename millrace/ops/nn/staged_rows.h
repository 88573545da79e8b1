#pragma once

#include "millrace/ops/accumulate.h"

// Row-wise kernels compute in float or double; tensors of half precision are converted on the way
// in and out.

namespace millrace {

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

}  // namespace millrace
