#pragma once

#include "millrace/graph/function_calls.h"

namespace millrace {

// What FunctionLibrary::instantiate() keeps: `function` as a graph for attribute values that fit
// its signature (defaults filled in). `functions` has those that the body can reach, and is the
// graph's library.
Result<Ref<FunctionBody>> build_function_body(const Function& function, const AttrMap& attrs,
                                              const OpRegistry& registry,
                                              Ref<FunctionLibrary> functions);

}  // namespace millrace
