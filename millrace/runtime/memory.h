#pragma once

#include <vector>

#include "millrace/runtime/subgraph.h"

namespace millrace {

// On which side of a device with memory of its own the tensors of a graph lie: the host's or the
// device's. By these rules, which know no op by name:
//
// * What an op declares host(...), and what only the host can hold (lives_on_host), is in host
//   memory; all else that kernels read and write is in the device's.
// * An op with the trait `forwards` touches no elements, so its outputs lie where its inputs do:
//   each where its own does when there are as many of one as of the other, else all in device
//   memory if any input is. Declared inputs and outputs do not count. A tensor in host memory that
//   is only read on the device is copied before such an op instead of after it.
// * What goes round a loop stays on one side: a Merge and the Enters and NextIterations it reads.
// * A constant lies where it is read. A received tensor does too, in host memory if it is read on
//   both sides: it comes from there.
// * A Send, and an op that only looks at shapes (metadata_only), take their inputs from either.
struct TensorMemory {
  // By node, one flag for each input and output: true in host memory.
  std::vector<std::vector<bool>> host_inputs;
  std::vector<std::vector<bool>> host_outputs;
};
Result<TensorMemory> find_memory(const Subgraph& graph);

// Puts a _CopyToHost or _CopyFromHost into every edge whose ends lie on different sides, one for
// each tensor, so that neither the executor nor a kernel copies. A constant that is read on both
// sides is made twice instead. A variable is copied as late as it would be read.
Status add_copies(Subgraph& graph);

}  // namespace millrace
