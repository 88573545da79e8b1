#pragma once

#include "millrace/distributed/worker_interface.h"

namespace millrace {

// `worker` for callers who may not reach everything there: their graphs have `rights` at most, and
// where these lack state, they may neither reset it nor be told of what others run,
// PERMISSION_DENIED. What is named by what nobody can guess (sessions, graphs, steps) is for who
// knows the name.
Ref<WorkerInterface> make_narrowed_worker(Ref<WorkerInterface> worker, GraphRights rights);

}  // namespace millrace
