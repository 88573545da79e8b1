#pragma once

#include <atomic>
#include <deque>
#include <thread>
#include <vector>

#include "millrace/base/function.h"
#include "millrace/base/mutex.h"
#include "millrace/device/cuda/runtime.h"
#include "millrace/kernel/device.h"
#include "millrace/kernel/step.h"

namespace millrace {

// CUDA's current device is each thread's own; remembered, so that asking costs nothing.
Status make_cuda_device_current(int ordinal);

// A stream of a GPU, made when it is first used. Continuations run on a thread of its own, which
// waits for the stream. Thread-safe. Lives as long as the process, unless it had no continuations.
class CudaStream final : public Stream {
 public:
  // What work reports of one step; see expect_finding().
  using Found = UniqueFunction<void(Step& step, uint64_t found)>;
  struct Finding {
    uint64_t* place = nullptr;
    Step* step = nullptr;
    Found found;
    // Nothing is found yet.
    void clear() const { *static_cast<volatile uint64_t*>(place) = ~uint64_t{0}; }
    // Tells `to` what was found.
    void report(Step& to) {
      const uint64_t value = *static_cast<volatile uint64_t*>(place);
      if (value != ~uint64_t{0}) found(to, value);
    }
  };

  explicit CudaStream(int ordinal) : ordinal_(ordinal) {}
  ~CudaStream() override;

  int ordinal() const { return ordinal_; }
  // Makes its GPU the thread's, and the stream if need be.
  Result<cudaStream_t> handle();

  Result<Ref<Event>> record() override;
  Status wait_for(Event& event) override;
  Status then(UniqueFunction<void(Status)> callback) override;

  // For work that may find something wrong on the device: a place in host memory, all bits set,
  // that it lowers to what it found. Once the stream is there, before what then() is told later,
  // `found` is called with `step` and that where it was lowered.
  Result<uint64_t*> expect_finding(Step& step, Found found);
  // What is expected so far, for a stream whose work was recorded: the places are the stream's.
  std::deque<Finding> take_findings();

 private:
  friend class CudaEvent;
  struct Continuation {
    Ref<Event> reached;
    uint64_t findings = 0;  // that come before
    UniqueFunction<void(Status)> callback;
  };

  Result<cudaEvent_t> take_event();
  void give_event(cudaEvent_t event);
  void run();

  const int ordinal_;
  Mutex start_mu_;
  std::atomic<cudaStream_t> stream_{nullptr};
  std::thread* thread_ MR_GUARDED_BY(mu_) = nullptr;

  Mutex mu_;
  CondVar changed_;
  std::deque<Continuation> continuations_ MR_GUARDED_BY(mu_);
  std::deque<Finding> findings_ MR_GUARDED_BY(mu_);
  uint64_t added_findings_ MR_GUARDED_BY(mu_) = 0, looked_at_ MR_GUARDED_BY(mu_) = 0;
  std::vector<uint64_t*> places_ MR_GUARDED_BY(mu_);    // that nothing uses
  std::vector<void*> place_memory_ MR_GUARDED_BY(mu_);  // that they are in
  Mutex events_mu_;
  std::vector<cudaEvent_t> events_ MR_GUARDED_BY(events_mu_);  // that nothing uses
};

}  // namespace millrace
