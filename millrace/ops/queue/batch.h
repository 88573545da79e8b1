#pragma once

#include <span>
#include <vector>

#include "millrace/kernel/kernel.h"
#include "millrace/ops/queue/element_store.h"

// Between elements of a queue and the inputs and outputs of ops.

namespace millrace {

// Inputs [first, ...) as one element; INVALID_ARGUMENT unless types and shapes are those of `spec`.
Result<QueueElement> element_from_inputs(KernelContext& ctx, int first, const QueueSpec& spec);

// Inputs [first, ...) cut along their first dimension, which all have in one size. Each element
// gets memory of its own: one that stays in a queue for long must not keep its batch.
Result<std::vector<QueueElement>> split_inputs(const KernelContext& ctx, int first,
                                               const QueueSpec& spec);

// Whether elements of `spec` can be joined to a batch: their shapes are known in full or, for a
// queue that pads, their ranks are. INVALID_ARGUMENT otherwise.
Status check_can_stack(const QueueSpec& spec);

// Sets every output to a batch of the component of that number. A queue that pads makes all rows as
// large as the largest, with zeros (or empty strings) at the end of each dimension.
Status stack_to_outputs(KernelContext& ctx, const QueueSpec& spec,
                        std::span<const QueueElement> elements);

// `tensor`, in memory that outlives the step.
Result<Tensor> own_memory(Tensor tensor);

}  // namespace millrace
