#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/base/status.h"

// What the tasks of a group say to each other: requests and answers of WorkerInterface.

namespace millrace {

// Asks the leader to take a member into the group. The leader is the first task of the cluster, by
// name.
struct JoinGroupRequest {
  int64_t group_key = 0;
  int64_t group_size = 0;
  int64_t min_size = 0;      // as few may form the group after a while; 0: all
  std::string member;        // the full name of a device
  uint64_t incarnation = 0;  // of the member's task
  int64_t attempt = 0;       // of the member; grows with each time that it forms the group
  int64_t last_number = 0;   // of the last epoch that it knows
};

// A group as it has formed: from then on until something is lost it is the same for all members.
struct GroupView {
  uint64_t epoch = 0;  // no other has this number, of any group in any life of the leader; not 0
  int64_t number = 0;  // counts the times that the group has formed
  std::vector<std::string> members;  // by rank: sorted by job, task and device
};

// Asks a member for a part of what it has in an instance.
struct RecvChunkRequest {
  int64_t group_key = 0;
  uint64_t epoch = 0;
  std::string member;  // that is asked
  int64_t rank = 0;    // its rank
  int64_t asker = 0;   // the rank of who asks
  int64_t instance_key = 0;
  int64_t sequence = 0;  // how often the instance was executed in this epoch before
  std::string what;      // what the asker does: the same for all members
  int64_t phase = 0;     // and which chunk of it
  int64_t chunk = 0;
};

// Says that a group is of no use any more: `reason` names the member that ended it.
struct EndGroupRequest {
  int64_t group_key = 0;
  uint64_t epoch = 0;
  Status reason;
};

// The task of a member: "/job:worker/replica:0/task:2". The member itself when that is no device.
std::string task_of_member(const std::string& member);

}  // namespace millrace
