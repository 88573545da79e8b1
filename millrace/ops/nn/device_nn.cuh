#pragma once

#include "millrace/ops/device_values.cuh"

// Layers of neural networks on a GPU. See DeviceEngine for what each does.

namespace millrace {

Status device_pool(KernelContext& ctx, DeviceEngine::Pool kind, DType dtype,
                   const DeviceEngine::Pooling& sizes, const void* x, const void* dy, void* y);
// The same of two axes, faster. UNIMPLEMENTED for what it does not do.
Status device_pool_images(KernelContext& ctx, DeviceEngine::Pool kind, DType dtype,
                          const DeviceEngine::Pooling& sizes, const void* x, const void* dy,
                          void* y);
Status device_softmax(KernelContext& ctx, bool log, DType dtype, const void* x, int64_t rows,
                      int64_t n, void* y);
Status device_cross_entropy(KernelContext& ctx, DType dtype, DType label, const void* x,
                            const void* labels, int64_t rows, int64_t n, void* loss,
                            void* gradient);
Status device_lrn(KernelContext& ctx, DType dtype, const void* x, const void* y, const void* dy,
                  int64_t rows, int64_t channels, int64_t radius, float bias, float alpha,
                  float beta, void* out);
// Convolutions from their definition, one result at a time: for sizes and types that cuDNN leaves.
Status device_convolve(KernelContext& ctx, DType dtype, DeviceEngine::Product product,
                       const DeviceEngine::Convolution& sizes, const void* image,
                       const void* filter, const void* dy, void* result);
// Products of matrices from their definition.
Status device_matmul(KernelContext& ctx, DType dtype, const DeviceEngine::MatMul& sizes,
                     const void* a, const void* b, void* c);

}  // namespace millrace
