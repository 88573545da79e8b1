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

  bool under_way(const std::string& checkpoint) const MR_REQUIRES(mu) {
    const auto line = lines.find(checkpoint);
    return line != lines.end() && line->second.running;
  }

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

// Wakes those who wait when a token (may be null) is cancelled. Lives outside of the lock.
class BackgroundSaves::Alarm {
 public:
  Alarm(Impl& impl, CancellationToken* cancel) : cancel_(cancel) {
    if (cancel_ == nullptr) return;
    ticket_ = cancel_->on_cancel([&impl] {
      MutexLock lock(impl.mu);
      impl.changed.notify_all();
    });
  }
  ~Alarm() {
    if (ticket_ != 0) cancel_->remove(ticket_);
  }
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  // Before each wait: OK, or why not to.
  Status status() const {
    return cancel_ != nullptr && cancel_->cancelled() ? cancel_->status() : ok_status();
  }

 private:
  CancellationToken* const cancel_;
  uint64_t ticket_ = 0;
};

BackgroundSaves::BackgroundSaves() : impl_(new Impl) {
  std::atexit([] { global().finish_all(); });
}

BackgroundSaves& BackgroundSaves::global() {
  static auto* const saves = new BackgroundSaves;  // never destroyed: threads may be using it
  return *saves;
}

Status BackgroundSaves::start(const std::string& checkpoint, UniqueFunction<Status()> save,
                              CancellationToken* cancel) {
  if (!impl_->here()) return failed_precondition("no save can go on in a process made by fork()");
  const Alarm alarm(*impl_, cancel);
  {
    MutexLock lock(impl_->mu);
    while (impl_->unfinished >= kMostUnfinished) {
      MR_TRY(alarm.status());
      impl_->changed.wait(impl_->mu);
    }
    ++impl_->unfinished;
    Line& line = impl_->lines[checkpoint];
    line.waiting.push_back(std::move(save));
    if (std::exchange(line.running, true)) return ok_status();
  }
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

Status BackgroundSaves::finish(const std::string& checkpoint, CancellationToken* cancel) {
  if (!impl_->here()) return ok_status();
  const Alarm alarm(*impl_, cancel);
  MutexLock lock(impl_->mu);
  while (impl_->under_way(checkpoint)) {
    MR_TRY(alarm.status());
    impl_->changed.wait(impl_->mu);
  }
  return ok_status();
}

Status BackgroundSaves::take_error(const std::string& checkpoint, CancellationToken* cancel) {
  MR_TRY(finish(checkpoint, cancel));
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
