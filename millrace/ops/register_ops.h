#pragma once

#include "millrace/base/status.h"

namespace millrace {

class Registry;

// Registers every op family, definitions and kernels, in `registry`.
void register_all_ops(Registry& registry);

// Registers every op in the process's registries, once; later calls return what the first one did.
// Thread-safe.
Status register_ops();

}  // namespace millrace
