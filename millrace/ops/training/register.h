#pragma once

// Optimisers: ops that update a variable, and what they remember about it, from a gradient.

namespace millrace {

class Registry;

void register_training_ops(Registry& registry);

void register_apply(Registry& registry);         // ApplyAdam, ResourceApplyAdam ...
void register_sparse_apply(Registry& registry);  // SparseApplyAdagrad ...

}  // namespace millrace
