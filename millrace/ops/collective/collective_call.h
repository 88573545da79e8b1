#pragma once

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/collectives.h"
#include "millrace/kernel/kernel.h"

// What the rules and kernels of collective ops share.

namespace millrace {

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
