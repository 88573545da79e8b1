#pragma once

#include <string>
#include <vector>

#include "millrace/runtime/subgraph.h"

namespace millrace {

// What a part of a graph that was cut by task sends to another task.
struct PartSend {
  std::string key;  // of the rendezvous, outside of loops
  std::string to;   // the task
  // Nothing that the part receives is needed for it, and it is in no loop or branch: it follows
  // from feeds, constants and what the task itself has.
  bool early = false;
};

// All _Sends of `part` whose receivers are on other tasks than the sender.
Result<std::vector<PartSend>> find_part_sends(const Subgraph& part);

}  // namespace millrace
