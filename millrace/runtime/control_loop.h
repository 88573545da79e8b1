#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "millrace/runtime/subgraph.h"

namespace millrace {

// The small loops that make a device take part in every iteration of a loop that runs on several.
struct ControlLoops {
  // By frame and device: the Merge that fires once in each iteration.
  std::map<std::pair<int, DeviceId>, NodeId> merges;
  // By node, those added included: the frame that its outputs live in; 0 is the root.
  std::vector<int> output_frame;
};

// Adds the control loops that cutting `graph` needs. `part_of` gives, by device, the part that
// nodes there go to. A frame that lies in one part, as do those around it, gets none: cutting that
// part again adds them. Loops that an earlier cut made are found again. INVALID_ARGUMENT for a
// frame over several parts without a LoopCond.
Result<ControlLoops> add_control_loops(Subgraph& graph, std::span<const int> part_of);

// An empty float: what edges carry that only order.
Result<NodeId> add_empty_constant(Subgraph& graph, std::string name,
                                  std::vector<NodeId> control_inputs, DeviceId device);

}  // namespace millrace
