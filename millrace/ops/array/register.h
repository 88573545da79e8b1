#pragma once

// Ops that make, reshape, cut, join and look up tensors.

namespace millrace {

class Registry;

void register_array_ops(Registry& registry);

void register_constant(Registry& registry);     // Const
void register_identity(Registry& registry);     // Identity IdentityN RefIdentity StopGradient PreventGradient
void register_placeholder(Registry& registry);  // Placeholder PlaceholderV2 PlaceholderWithDefault

}  // namespace millrace
