#pragma once

#include "millrace/distributed/worker.h"

namespace millrace {

// The worker of a task, or why there is none. Called from any thread, by several at once.
using FindWorker = UniqueFunction<Result<Ref<Worker>>()>;

// Carries calls to a task of this process, by function calls; tensors share memory. Graphs are
// compiled and run on other threads than the caller's, those of `pool` (null: the process's own);
// run on the caller's where a request allows it (RunGraphRequest::on_caller).
Ref<WorkerInterface> make_direct_worker(FindWorker find, ThreadPool* pool = nullptr);

}  // namespace millrace
