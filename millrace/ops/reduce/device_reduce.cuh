#pragma once

#include "millrace/ops/device_values.cuh"

// Folds on a GPU. See DeviceEngine for what each does.

namespace millrace {

Status device_reduce(KernelContext& ctx, DeviceEngine::Reduction kind, DType dtype, const void* x,
                     DeviceEngine::FoldDims dims, void* y);
Status device_l2_loss(KernelContext& ctx, DType dtype, const void* x, int64_t n, void* y);
Status device_arg_reduce(KernelContext& ctx, bool largest, DType dtype, DType index, const void* x,
                         int64_t outer, int64_t n, int64_t inner, void* y);

}  // namespace millrace
