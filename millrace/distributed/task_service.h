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

Message to_message(const TaskDescription& description);
// INVALID_ARGUMENT for what is none, and for a task that is not of its cluster.
Result<TaskDescription> read_task_description(const Message& message);

// Answers the calls of a server's task: the worker's, the one that asks who it is, those to its
// `aliases` (task_alias.h), and the one that tells it to end: then `stop` is called, once it was
// answered. The last two are PERMISSION_DENIED where they are not given.
Ref<CallHandler> make_task_service(TaskDescription description, Ref<WorkerInterface> worker,
                                   std::function<void()> stop = nullptr,
                                   Ref<CallHandler> aliases = nullptr);

// Asks the server at the other end of a channel who it is, and waits for the answer.
// DEADLINE_EXCEEDED when none comes in time.
Result<TaskDescription> ask_task(Channel& channel, int64_t timeout_ms);

// Tells the server at the other end to end; `done` gets its answer. Does not wait.
void stop_task(Channel& channel, UniqueFunction<void(Status)> done);

}  // namespace millrace
