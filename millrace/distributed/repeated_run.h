#pragma once

#include "millrace/base/timer.h"
#include "millrace/distributed/worker_interface.h"

namespace millrace {

// run_graph, said again where its connection is lost before the answer comes: three times, the last
// within a quarter of lost_after_ms(). That is safe: a task runs a graph once in a step and answers
// who asks again with what that came to, and one that has restarted knows neither. Where the last
// word is lost too, or says that the task knows nothing of the run, the answer is that the
// connection was lost. Runs on tasks of this process are not repeated.
void run_graph_surely(Ref<WorkerInterface> worker, Ref<Timer> timer, RunGraphRequest request,
                      Ref<CancellationToken> cancel,
                      UniqueFunction<void(Status, RunGraphResponse)> done);

// give_tensor, said again likewise; a second one changes nothing. Not any more once `cancel` is
// cancelled.
void give_tensor_surely(const Ref<WorkerInterface>& worker, const Ref<Timer>& timer,
                        int64_t step_id, const std::string& key, const Value& value,
                        const Ref<CancellationToken>& cancel, WorkerInterface::StatusDone done);

}  // namespace millrace
