#include "millrace/kernel/collectives.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/kernel/device.h"
#include "millrace/kernel/rendezvous.h"
#include "millrace/kernel/step.h"

namespace millrace {
namespace {

struct Provided {
  Mutex mu;
  // By task, in the order in which they came.
  std::vector<std::pair<std::string, Ref<Collectives>>> tasks MR_GUARDED_BY(mu);
};

Provided& provided() {
  static Provided* all = new Provided;
  return *all;
}

}  // namespace

void provide_collectives(std::string_view task, Ref<Collectives> collectives) {
  Provided& all = provided();
  MutexLock lock(all.mu);
  all.tasks.emplace_back(task, std::move(collectives));
}

void withdraw_collectives(const Collectives& collectives) {
  Provided& all = provided();
  std::vector<Ref<Collectives>> dropped;  // after the lock
  MutexLock lock(all.mu);
  std::erase_if(all.tasks, [&](auto& entry) {
    if (entry.second.get() != &collectives) return false;
    dropped.push_back(std::move(entry.second));
    return true;
  });
}

Ref<Collectives> find_collectives(const Step& step, const Device& device) {
  if (step.rendezvous && step.rendezvous->collectives) return step.rendezvous->collectives;
  const DeviceName& name = device.info().name;
  const std::string task = name.task_name();
  Provided& all = provided();
  MutexLock lock(all.mu);
  const auto last = std::find_if(all.tasks.rbegin(), all.tasks.rend(), [&](const auto& entry) {
    return entry.first == task || name.job == "localhost";
  });
  return last == all.tasks.rend() ? nullptr : last->second;
}

}  // namespace millrace
