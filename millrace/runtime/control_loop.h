#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "millrace/runtime/subgraph.h"

namespace millrace {

// The small loops that make a device take part in every iteration of a loop that runs on several.
struct ControlLoops {
  // By frame and device: the Merge that fires once in each iteration.
  std::map<std::pair<int, std::string>, NodeId> merges;
  // By node, those added included: the frame that its outputs live in; 0 is the root.
  std::vector<int> output_frame;
};

// Adds the control loops that cutting `graph` needs. `location_of` gives, by device, the part that
// nodes there go to. A frame that lies in one part, as do those around it, gets none: cutting that
// part again adds them. Loops that an earlier cut made are found again. INVALID_ARGUMENT for a
// frame over several parts without a LoopCond.
Result<ControlLoops> add_control_loops(Subgraph& graph,
                                       const std::map<std::string, std::string>& location_of);

// An empty float: what edges carry that only order.
Result<NodeId> add_empty_constant(Subgraph& graph, std::string name,
                                  std::vector<NodeId> control_inputs, std::string device);

}  // namespace millrace
