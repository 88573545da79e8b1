#pragma once

#include "millrace/ops/device_values.cuh"

// Elements that are moved, made or converted on a GPU. See DeviceEngine for what each does.

namespace millrace {

Status device_select(KernelContext& ctx, size_t size, const BroadcastIndex& index,
                     const void* condition, const void* t, const void* e, void* out, int64_t n);
Status device_cast(KernelContext& ctx, DType from, DType to, bool truncate, const void* x, void* y,
                   int64_t n);
Status device_add_n(KernelContext& ctx, DType dtype, std::span<const void* const> inputs, void* y,
                    int64_t n);
Status device_strided_copy(const KernelContext& ctx, size_t size, std::span<const int64_t[3]> dims,
                           const void* from, void* to);
Status device_fill(const KernelContext& ctx, size_t size, const void* value, bool host, void* to,
                   int64_t n);
Status device_range(KernelContext& ctx, DType dtype, double start, double delta, int64_t int_start,
                    int64_t int_delta, void* to, int64_t n);
Status device_transpose(const KernelContext& ctx, size_t size, int64_t n, int64_t a, int64_t b,
                        const void* from, void* to);
Status device_gather(KernelContext& ctx, size_t size, DType index, int64_t batch, int64_t outer,
                     int64_t count, int64_t run, const void* from, const void* indices,
                     DeviceEngine::IndexCheck check, void* out);
Status device_scatter(KernelContext& ctx, std::string_view op, DType dtype, DType index,
                      int64_t count, int64_t run, const void* from, bool one_row,
                      const void* indices, DeviceEngine::IndexCheck check, void* to);
Status device_one_hot(KernelContext& ctx, size_t size, DType index, const void* indices,
                      int64_t outer, int64_t depth, int64_t inner, const void* on, const void* off,
                      void* out);
Status device_random(KernelContext& ctx, DeviceEngine::Distribution kind, DType dtype,
                     const uint64_t* stream, void* y, int64_t n);

// A place for what work of this kernel finds wrong; the step then fails with what `say` makes of
// the position that was reported.
Result<uint64_t*> expect_finding(const KernelContext& ctx, UniqueFunction<Status(uint64_t)> say);

}  // namespace millrace
