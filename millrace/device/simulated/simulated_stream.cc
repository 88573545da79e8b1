#include "millrace/device/simulated/simulated_stream.h"

#include <utility>

namespace millrace {
namespace {

class SimulatedEvent final : public Event {
 public:
  Status wait() override {
    MutexLock lock(mu_);
    while (!done_) changed_.wait(mu_);
    return error_;
  }
  bool done() override {
    MutexLock lock(mu_);
    return done_;
  }
  void set(Status error) {
    MutexLock lock(mu_);
    done_ = true;
    error_ = std::move(error);
    changed_.notify_all();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool done_ MR_GUARDED_BY(mu_) = false;
  Status error_ MR_GUARDED_BY(mu_);
};

}  // namespace

SimulatedStream::SimulatedStream() : thread_([this] { run(); }) {}

SimulatedStream::~SimulatedStream() {
  {
    MutexLock lock(mu_);
    ends_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void SimulatedStream::enqueue(UniqueFunction<void()> work) {
  MutexLock lock(mu_);
  work_.push_back(std::move(work));
  changed_.notify_all();
}

Result<Ref<Event>> SimulatedStream::record() {
  Ref<SimulatedEvent> event = make_ref<SimulatedEvent>();
  enqueue([this, event] { event->set(status()); });
  return Ref<Event>(std::move(event));
}

Status SimulatedStream::wait_for(Event& event) {
  enqueue([event = Ref<Event>(&event)] { static_cast<void>(event->wait()); });
  return ok_status();
}

Status SimulatedStream::then(UniqueFunction<void(Status)> callback) {
  enqueue([this, callback = std::move(callback)]() mutable { callback(status()); });
  return ok_status();
}

void SimulatedStream::hold() {
  MutexLock lock(mu_);
  held_ = true;
}

void SimulatedStream::resume() {
  MutexLock lock(mu_);
  held_ = false;
  changed_.notify_all();
}

void SimulatedStream::fail(Status error) {
  MutexLock lock(mu_);
  error_ = std::move(error);
}

Status SimulatedStream::status() const {
  MutexLock lock(mu_);
  return error_;
}

void SimulatedStream::run() {
  while (true) {
    UniqueFunction<void()> next;
    {
      MutexLock lock(mu_);
      while (!ends_ && (held_ || work_.empty())) changed_.wait(mu_);
      if (work_.empty()) return;
      next = std::move(work_.front());
      work_.pop_front();
    }
    next();
  }
}

}  // namespace millrace
