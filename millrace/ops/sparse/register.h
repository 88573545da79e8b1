#pragma once

// Ops on sparse tensors, each given as three: indices [N, rank], values [N] and the shape [rank].

namespace millrace {

class Registry;

void register_sparse_ops(Registry& registry);

void register_edit_distance(Registry& registry);
void register_serialize_sparse(Registry& registry);  // SerializeSparse SerializeManySparse ...
void register_sets(Registry& registry);              // SetSize DenseToDenseSetOperation ...

}  // namespace millrace
