#pragma once

#include <string>
#include <string_view>

#include "millrace/distributed/worker_interface.h"

namespace millrace {

// What a task does, in Prometheus' text format: counters and gauges whose names begin with
// "millrace_", each with the label `task`. docs/clusters.md lists them.
std::string metrics_text(std::string_view task, const WorkerActivity& activity);

}  // namespace millrace
