#include "millrace/base/spare_thread.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/base/thread_pool.h"

namespace millrace {
namespace {

thread_local std::vector<UniqueFunction<void()>>* taken = nullptr;

}  // namespace

void SpareThread::run(FunctionRef<void()> work, int64_t patience_ns) {
  if (taken != nullptr) return work();
  std::vector<UniqueFunction<void()>> tasks;
  taken = &tasks;
  const int64_t start_ns = monotonic_nanos();
  work();
  for (size_t i = 0; i < tasks.size(); ++i) {
    UniqueFunction<void()> task = std::move(tasks[i]);
    if (monotonic_nanos() - start_ns < patience_ns) {
      task();
    } else {
      ThreadPool::global().schedule(std::move(task));
    }
  }
  taken = nullptr;
}

bool SpareThread::take(UniqueFunction<void()>& task) {
  if (taken == nullptr) return false;
  taken->push_back(std::move(task));
  return true;
}

}  // namespace millrace
