#pragma once

// Ops that steer a step instead of computing: branches and loops as dataflow, ordering, assertions,
// and the ends of edges that leave a plan.

namespace millrace {

class Registry;

void register_control_ops(Registry& registry);

void register_arguments(Registry& registry);  // _Arg _Retval
void register_assert(Registry& registry);     // Assert
void register_control_flow(
    Registry& registry);                       // Switch Merge Enter Exit NextIteration LoopCond ...
void register_functional(Registry& registry);  // If Case While PartitionedCall SymbolicGradient ...
void register_no_op(Registry& registry);       // NoOp
void register_optional(Registry& registry);    // OptionalNone OptionalFromValue ...
void register_print(Registry& registry);       // Print PrintV2 Timestamp
void register_send_recv(Registry& registry);   // _Send _Recv _HostSend _HostRecv

}  // namespace millrace
