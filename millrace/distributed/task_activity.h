#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "millrace/distributed/task_steps.h"
#include "millrace/distributed/worker_interface.h"

namespace millrace {

// How a task's steps and resources are told to those who watch it.

// What collective operations wait for, by step (TaskCollectives::waits()).
using CollectiveWaits = std::vector<std::pair<int64_t, std::string>>;

// A row for each step: what it waits for, and where the user's program made that. Takes out of
// `together` what is of these steps.
std::vector<WorkerActivity::Step> tell_steps(std::span<const TaskStep> steps,
                                             CollectiveWaits& together, int64_t now_ns);

// A row for each of the first 64 resources of these devices that are filled and emptied
// (Resource::fill()).
std::vector<WorkerActivity::Queue> tell_queues(std::span<const Ref<Device>> devices);

}  // namespace millrace
