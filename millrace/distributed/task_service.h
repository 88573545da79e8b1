#pragma once

#include <string>

#include "millrace/distributed/cluster.h"
#include "millrace/distributed/rpc/channel.h"

namespace millrace {

// What a server tells about itself: which task it is, and which others there are.
struct TaskDescription {
  std::string task;  // "/job:J/replica:0/task:T"
  ClusterSpec cluster;
};

// Answers the calls of a server's task: the worker's, and the one that asks who it is.
Ref<CallHandler> make_task_service(TaskDescription description, Ref<WorkerInterface> worker);

// Asks the server at the other end of a channel who it is, and waits for the answer.
// DEADLINE_EXCEEDED when none comes in time.
Result<TaskDescription> ask_task(Channel& channel, int64_t timeout_ms);

}  // namespace millrace
