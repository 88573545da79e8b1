#pragma once

#include "millrace/graph/op_def.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/collectives.h"
#include "millrace/kernel/kernel.h"

// What the rules and kernels of collective ops share.

namespace millrace {

// Attributes and inputs that collective ops have in common.
namespace collective_spec {
// The first version names the group and the instance by attributes,
inline constexpr OpSpec::Attr kGroupSize = {"group_size", "int"};
inline constexpr OpSpec::Attr kGroupKey = {"group_key", "int"};
inline constexpr OpSpec::Attr kInstanceKey = {"instance_key", "int"};
// the second by inputs.
inline constexpr OpSpec::Arg kGroupSizeInput = {"group_size", "host(int32)"};
inline constexpr OpSpec::Arg kGroupKeyInput = {"group_key", "host(int32)"};
inline constexpr OpSpec::Arg kInstanceKeyInput = {"instance_key", "host(int32)"};
inline constexpr OpSpec::Arg kOrderingToken = {"ordering_token", "Nordering_token*resource"};
inline constexpr OpSpec::Attr kOrderingTokens = {"Nordering_token", "int = 0 >= 0"};
inline constexpr OpSpec::Attr kIsStateless = {"is_stateless", "bool = false"};
// Both have these.
inline constexpr OpSpec::Attr kHint = {"communication_hint", "string = 'auto'",
                                       "Of reductions, 'ring' or 'tree'; else what is faster."};
inline constexpr OpSpec::Attr kTimeout = {"timeout_seconds", "float = 0.0",
                                          "0: waits for as long as it takes."};
}  // namespace collective_spec

// Says which group and instance a node takes part in: by attributes, or in the second version of
// the ops by int32 scalars, the inputs from `first_input` on.
class CollectiveCall {
 public:
  static constexpr int kByAttributes = -1;
  // INVALID_ARGUMENT for a group without members and for a timeout that is none.
  static Result<CollectiveCall> make(const KernelNode& node, int first_input);

  Result<Collectives::Request> request(const KernelContext& ctx) const;

 private:
  Collectives::Request fixed_;
  int first_input_ = kByAttributes;
};

// What a shape rule can say of it: as make() and request() do, of attributes and of constants. The
// inputs that name the group are scalars.
Status check_collective_call(const ShapeContext& c, int first_input);

// What the step takes part in collective operations by. FAILED_PRECONDITION where the process is no
// task of a cluster.
Result<Ref<Collectives>> collectives_of(const KernelContext& ctx,
                                        const Collectives::Request& request);

// Ends a kernel with the result of an operation as its output.
Collectives::Done set_output_then(KernelContext& ctx, AsyncKernel::Done done);

}  // namespace millrace
