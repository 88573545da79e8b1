#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "millrace/runtime/partition.h"

namespace millrace {

// What a part of a graph that was cut by task sends to another task, and when in a step it can be
// there: tasks answer the session's own in rounds. What the own task sends in round 0 follows from
// feeds, constants and what the task itself has; what others send in round r needs, of all that
// they receive, at most what the own task sends in rounds up to r; and what it sends in round r + 1
// needs what others send in round r.
struct PartSend {
  // Of what is later than round 1, or not known: in or behind a loop or a branch, or behind what
  // one of the other tasks sends to another.
  static constexpr int kUnknown = 2;

  std::string key;       // of the rendezvous, outside of loops
  std::string from, to;  // the tasks
  int round = 0;
};

// All _Sends of `parts` whose receivers are on other tasks than the sender. `own_task` is the
// session's.
Result<std::vector<PartSend>> find_part_sends(const std::vector<Partition>& parts,
                                              std::string_view own_task);

}  // namespace millrace
