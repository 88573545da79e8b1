#pragma once

#include "millrace/ops/device_values.cuh"

namespace millrace {

// A pass of an optimiser on a GPU; see DeviceEngine::apply. UNIMPLEMENTED where it first needs
// norms.
Status device_apply(KernelContext& ctx, int rule, bool flag, DType dtype,
                    std::span<void* const> slots, const void* gradient,
                    std::span<const void* const> scalars, int64_t n);

// Whether device_apply() has the optimiser of this number.
bool device_applies(int rule);

}  // namespace millrace
