#pragma once

#include "millrace/kernel/kernel.h"

namespace millrace {

// Whether float32 products may be computed from tf32's ten bits of mantissa: unless
// MILLRACE_TF32=0.
bool cuda_tf32();

// Products of matrices by cuBLASLt, row-major: c = op(a) op(b), op(a) [m,k]. `batch` of them lie
// behind each other, `stride_x` elements apart (0: one serves all). UNIMPLEMENTED for types that it
// does not compute.
struct CudaProduct {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  int64_t batch = 1, stride_a = 0, stride_b = 0, stride_c = 0;
};
Status cuda_matmul(const KernelContext& ctx, DType dtype, const CudaProduct& sizes, const void* a,
                   const void* b, void* c);

}  // namespace millrace
