#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/function.h"
#include "millrace/graph/function.h"

// Which functions a function may call. Inside graph/ only.

namespace millrace {

// The names that `function` may call: the ops of its body and the functions in attributes, each
// once and in order. Not all of them need be functions.
std::vector<std::string> called_names(const Function& function);
// Adds the functions that stand in `value`, at any depth.
void collect_functions(const AttrValue& value, std::vector<std::string>& names);

using FindFunction = FunctionRef<Ref<Function>(std::string_view)>;

// The functions that can be reached from `roots`, these included. INVALID_ARGUMENT when one of them
// reaches itself; the message shows the way around. Uses no stack.
Result<std::vector<Ref<Function>>> check_no_recursion(std::span<const std::string> roots,
                                                      FindFunction find);

// INVALID_ARGUMENT when the body has an op that only the runtime puts into graphs.
Status refuse_internal_ops(const Function& function, const OpRegistry& registry);

// Equal in all that their messages say.
bool same_function(const Function& a, const Function& b);

}  // namespace millrace
