#pragma once

#include "millrace/graph/function_calls.h"

namespace millrace {

// What FunctionLibrary::instantiate() keeps: `function` as a graph for attribute values that fit
// its signature (defaults filled in). The graph's library holds the functions that the body can
// reach.
Result<Ref<FunctionBody>> build_function_body(const Function& function, const AttrMap& attrs,
                                              const OpRegistry& registry, FindFunction find);

}  // namespace millrace
