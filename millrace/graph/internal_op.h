#pragma once

#include <string_view>

#include "millrace/base/status.h"

namespace millrace {

class OpRegistry;

// Ops that only the runtime puts into graphs: the parameters and results of bodies, sends and
// receives, and what passes make. Their names begin with '_', as those of the runtime's own nodes
// and attributes do. A function may have such a name too.
bool is_internal_op(const OpRegistry& registry, std::string_view op);

// INVALID_ARGUMENT when `op` is one of them, for a node that a user wrote.
Status refuse_internal_op(const OpRegistry& registry, std::string_view op);

}  // namespace millrace
