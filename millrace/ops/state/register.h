#pragma once

// Variables of both kinds and the ops that read and update them. docs/consistency.md says what each
// kind guarantees to threads that use it at once.

namespace millrace {

class Registry;

void register_state_ops(Registry& registry);

void register_assign(Registry& registry);               // Assign AssignAdd AssignSub ...VariableOp
void register_count_up_to(Registry& registry);          // CountUpTo
void register_reference_variables(Registry& registry);  // VariableV2 Variable TemporaryVariable ...
void register_resource_gather(Registry& registry);      // ResourceGather
void register_resource_variables(Registry& registry);   // VarHandleOp ReadVariableOp ...
void register_scatter(Registry& registry);              // ScatterAdd ... ResourceScatterAdd ...
void register_scatter_nd(Registry& registry);           // ScatterNdAdd ... ResourceScatterNdAdd ...
void register_strided_slice_assign(Registry& registry);  // StridedSliceAssign ResourceStrided...

}  // namespace millrace
