#pragma once

#include <deque>
#include <thread>

#include "millrace/base/function.h"
#include "millrace/base/mutex.h"
#include "millrace/kernel/device.h"

namespace millrace {

// A stream that runs on a thread of its own: functions in the order in which they were enqueued.
// Thread-safe.
class SimulatedStream final : public Stream {
 public:
  SimulatedStream();
  // Runs what is enqueued, held or not.
  ~SimulatedStream() override;

  void enqueue(UniqueFunction<void()> work);
  Result<Ref<Event>> record() override;
  Status wait_for(Event& event) override;
  Status then(UniqueFunction<void(Status)> callback) override;

  // For tests. Held, nothing that is enqueued runs.
  void hold();
  void resume();
  // From now on the stream reports `error`, as that of a device which is lost.
  void fail(Status error);
  Status status() const;

 private:
  void run();

  mutable Mutex mu_;
  CondVar changed_;
  std::deque<UniqueFunction<void()>> work_ MR_GUARDED_BY(mu_);
  bool held_ MR_GUARDED_BY(mu_) = false;
  bool ends_ MR_GUARDED_BY(mu_) = false;
  Status error_ MR_GUARDED_BY(mu_);
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace millrace
