#pragma once

#include <cstdint>

namespace millrace {

// How much a server holds for its clients, all together; past it they are RESOURCE_EXHAUSTED, with
// the name of the variable. docs/distributed.md, "Limits".
struct ServerLimits {
  // Sessions on a task, of masters of other processes, and as many again of TensorFlow's clients.
  int sessions = 1024;
  // Those of one client, a process of this machine or another machine: half of all by default, so
  // that none takes all.
  int sessions_per_client = 512;
  // What the graphs that are registered on a task take, compiled, and as much again for the graphs
  // of TensorFlow's clients, as they sent them.
  int64_t graph_bytes = int64_t{4} << 30;
  // Calls of one client to the task that wait for their answers (WaitingCalls), and what their
  // requests have besides the elements of tensors.
  int calls_per_client = 65'536;
  int64_t call_bytes_per_client = int64_t{1} << 30;

  // MILLRACE_CLUSTER_MAX_SESSIONS, MILLRACE_CLUSTER_MAX_SESSIONS_PER_CLIENT,
  // MILLRACE_CLUSTER_MAX_GRAPH_MB, MILLRACE_CLUSTER_MAX_CALLS_PER_CLIENT,
  // MILLRACE_CLUSTER_MAX_CALL_MB_PER_CLIENT.
  static ServerLimits from_environment();
};

}  // namespace millrace
