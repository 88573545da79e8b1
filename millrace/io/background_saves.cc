#include "millrace/io/background_saves.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <system_error>
#include <thread>
#include <utility>

#include "millrace/base/mutex.h"

namespace millrace {
namespace {

// Training goes first where there are too few processors for both.
void make_this_thread_polite() {
  constexpr int kNiceness = 5;
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNiceness);
}

struct Line {
  std::deque<UniqueFunction<Status()>> waiting;
  bool running = false;
  Status error;
};

}  // namespace

struct BackgroundSaves::Impl {
  const pid_t process = getpid();
  Mutex mu;
  CondVar changed;
  std::map<std::string, Line> lines MR_GUARDED_BY(mu);
  int unfinished MR_GUARDED_BY(mu) = 0;

  // The threads that would end what is under way are in this process.
  bool here() const { return getpid() == process; }

  void run(const std::string& checkpoint) {
    MutexLock lock(mu);
    Line& line = lines[checkpoint];
    while (!line.waiting.empty()) {
      UniqueFunction<Status()> save = std::move(line.waiting.front());
      line.waiting.pop_front();
      lock.unlock();
      Status status = save();
      save = nullptr;
      lock.lock();
      if (line.error.ok()) line.error = std::move(status);
      --unfinished;
      changed.notify_all();
    }
    line.running = false;
    if (line.error.ok()) lines.erase(checkpoint);
    changed.notify_all();
  }
};

BackgroundSaves::BackgroundSaves() : impl_(new Impl) {
  std::atexit([] { global().finish_all(); });
}

BackgroundSaves& BackgroundSaves::global() {
  static auto* const saves = new BackgroundSaves;  // never destroyed: threads may be using it
  return *saves;
}

Status BackgroundSaves::start(const std::string& checkpoint, UniqueFunction<Status()> save) {
  if (!impl_->here()) return failed_precondition("no save can go on in a process made by fork()");
  MutexLock lock(impl_->mu);
  while (impl_->unfinished >= kMostUnfinished) impl_->changed.wait(impl_->mu);
  ++impl_->unfinished;
  Line& line = impl_->lines[checkpoint];
  line.waiting.push_back(std::move(save));
  if (std::exchange(line.running, true)) return ok_status();
  lock.unlock();
  try {
    std::thread([impl = impl_, checkpoint] {
      make_this_thread_polite();
      impl->run(checkpoint);
    }).detach();
  } catch (const std::system_error&) {
    impl_->run(checkpoint);  // no thread to be had: it is saved all the same
  }
  return ok_status();
}

void BackgroundSaves::finish(const std::string& checkpoint) {
  if (!impl_->here()) return;
  MutexLock lock(impl_->mu);
  for (;;) {
    const auto line = impl_->lines.find(checkpoint);
    if (line == impl_->lines.end() || !line->second.running) return;
    impl_->changed.wait(impl_->mu);
  }
}

Status BackgroundSaves::take_error(const std::string& checkpoint) {
  finish(checkpoint);
  if (!impl_->here()) return ok_status();
  MutexLock lock(impl_->mu);
  const auto line = impl_->lines.find(checkpoint);
  if (line == impl_->lines.end()) return ok_status();
  Status error = std::exchange(line->second.error, Status());
  if (!line->second.running) impl_->lines.erase(line);
  return error;
}

void BackgroundSaves::finish_all() {
  if (!impl_->here()) return;
  MutexLock lock(impl_->mu);
  while (impl_->unfinished > 0) impl_->changed.wait(impl_->mu);
}

}  // namespace millrace
