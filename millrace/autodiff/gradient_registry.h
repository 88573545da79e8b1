#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "millrace/graph/gradient.h"

namespace millrace {

// Gradient rules by name, for operations that ask for another rule than their op's: a node's
// attribute "_gradient_op_type" names it, or another op whose rule it takes. A rule under the name
// of an op that has none of its own is that op's. Rules may carry state, such as a closure of the
// caller's.

using GradientFunction = std::function<Status(GradientContext&)>;

// ALREADY_EXISTS for a name taken. Thread-safe.
Status register_gradient(std::string_view name, GradientFunction rule);
// A name not taken yet, made from `base`, under which `rule` is registered.
std::string register_unique_gradient(std::string_view base, GradientFunction rule);
// Nobody finds it any more; calls that found it before may still run.
void unregister_gradient(std::string_view name);
// Empty when there is none.
GradientFunction find_gradient(std::string_view name);

// The attribute.
inline constexpr std::string_view kGradientOverride = "_gradient_op_type";

}  // namespace millrace
