#pragma once

#include <span>

#include "python/src/context.h"
#include "python/src/eager_tensor.h"

namespace millrace::python {

// Whether calls on this thread run at once: eager execution is on, and no graph is open.
bool runs_eagerly();

// Runs an op with one output on two tensors. Raises what goes wrong.
void run_binary(const eager::Op& op, std::span<eager::EagerTensor* const> inputs,
                eager::TensorRef& output);

}  // namespace millrace::python
