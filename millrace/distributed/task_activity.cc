#include "millrace/distributed/task_activity.h"

#include "millrace/kernel/resource_manager.h"

namespace millrace {
namespace {

constexpr size_t kToldQueues = 64;

std::vector<std::string> waits_of(const TaskStep& step, CollectiveWaits& together) {
  std::vector<std::string> waits = step.rendezvous->waiting();
  std::erase_if(together, [&](std::pair<int64_t, std::string>& wait) {
    if (wait.first != step.step->id) return false;
    waits.push_back(std::move(wait.second));
    return true;
  });
  for (std::string& kernel : step.rendezvous->waiting_kernels()) {
    waits.push_back(std::move(kernel));
  }
  return waits;
}

}  // namespace

std::vector<WorkerActivity::Step> tell_steps(std::span<const TaskStep> steps,
                                             CollectiveWaits& together, int64_t now_ns) {
  std::vector<WorkerActivity::Step> out;
  for (const TaskStep& known : steps) {
    WorkerActivity::Step& step = out.emplace_back();
    step.id = known.step->id;
    step.waits_for = waits_of(known, together);
    step.defined.resize(step.waits_for.size());
    if (!known.graph) continue;
    step.session = known.graph->session()->name();
    step.running_ms = (now_ns - known.began_ns) / 1'000'000;
    for (size_t i = 0; i < step.waits_for.size(); ++i) {
      step.defined[i] = known.graph->where_defined(step.waits_for[i]);
    }
  }
  return out;
}

std::vector<WorkerActivity::Queue> tell_queues(std::span<const Ref<Device>> devices) {
  std::vector<WorkerActivity::Queue> out;
  for (const Ref<Device>& device : devices) {
    for (ResourceManager::Entry& entry : device->resources().list()) {
      if (!entry.fill) continue;
      if (out.size() == kToldQueues) return out;
      out.push_back({.device = device->name(),
                     .container = std::move(entry.container),
                     .name = std::move(entry.name),
                     .size = entry.fill->size,
                     .capacity = entry.fill->capacity,
                     .closed = entry.fill->closed});
    }
  }
  return out;
}

}  // namespace millrace
