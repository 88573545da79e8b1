#pragma once

#include "millrace/kernel/registry.h"

namespace millrace {

// The kernel of _FusedElementwise for CUDA devices.
void register_device_fused(Registry& registry);

}  // namespace millrace
