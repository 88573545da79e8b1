#pragma once

#include <string>
#include <vector>

#include "millrace/runtime/device_set.h"
#include "millrace/runtime/subgraph.h"

namespace millrace {

enum class PartitionBy { kTask, kDevice };

struct Partition {
  std::string location;  // full device name, or task name
  Subgraph graph;
};

// Cuts a placed graph into one graph per task or device. An edge between two parts becomes a _Send
// and a _Recv, one pair for each tensor and destination; a control edge carries an empty tensor; a
// loop that runs on several parts gets, on each device that takes part, a small loop driven by its
// LoopCond. Everything is as spec/graph_semantics.md section 6 says, names included.
// INVALID_ARGUMENT for a loop over several parts that has no LoopCond.
//
// Cutting by task and then each part by device gives the same result as cutting by device at once:
// a _Send or _Recv that exists keeps its key.
Result<std::vector<Partition>> partition(const Subgraph& graph, PartitionBy by,
                                         const DeviceSet& devices);

}  // namespace millrace
