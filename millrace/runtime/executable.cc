#include "millrace/runtime/executable.h"

#include "millrace/base/mutex.h"

namespace millrace {

Status Executable::run(const StepArgs& args) const {
  Mutex mu;
  CondVar ended;
  bool over = false;
  Status result;
  run_async(args, [&](Status status) {
    MutexLock lock(mu);
    result = std::move(status);
    over = true;
    ended.notify_all();
  });
  MutexLock lock(mu);
  while (!over) ended.wait(mu);
  return result;
}

}  // namespace millrace
