#pragma once

#include <functional>
#include <string>

#include "millrace/distributed/cluster.h"
#include "millrace/distributed/rpc/channel.h"

namespace millrace {

// What a server tells about itself: which task it is, and which others there are.
struct TaskDescription {
  std::string task;  // "/job:J/replica:0/task:T"
  ClusterSpec cluster;
};

// Answers the calls of a server's task: the worker's, the one that asks who it is, and the one that
// tells it to end: then `stop` is called, once it was answered. Without `stop` that is
// PERMISSION_DENIED.
Ref<CallHandler> make_task_service(TaskDescription description, Ref<WorkerInterface> worker,
                                   std::function<void()> stop = nullptr);

// Asks the server at the other end of a channel who it is, and waits for the answer.
// DEADLINE_EXCEEDED when none comes in time.
Result<TaskDescription> ask_task(Channel& channel, int64_t timeout_ms);

// Tells the server at the other end to end; `done` gets its answer. Does not wait.
void stop_task(Channel& channel, UniqueFunction<void(Status)> done);

}  // namespace millrace
