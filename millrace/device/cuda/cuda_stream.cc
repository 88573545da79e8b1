#include "millrace/device/cuda/cuda_stream.h"

#include <atomic>
#include <utility>

namespace millrace {

Status make_cuda_device_current(int ordinal) {
  thread_local int current = -1;
  if (current == ordinal) [[likely]]
    return ok_status();
  MR_CUDA_TRY(cudaSetDevice(ordinal));
  current = ordinal;
  return ok_status();
}

// A place in a stream.
class CudaEvent final : public Event {
 public:
  CudaEvent(CudaStream& stream, cudaEvent_t event) : stream_(stream), event_(event) {}

  Status wait() override {
    MR_TRY(make_cuda_device_current(stream_.ordinal()));
    MR_CUDA_TRY(cudaEventSynchronize(event_));
    return ok_status();
  }
  bool done() override {
    if (!make_cuda_device_current(stream_.ordinal()).ok()) return true;
    return cudaEventQuery(event_) != cudaErrorNotReady;
  }
  cudaEvent_t event() const { return event_; }

 protected:
  ~CudaEvent() override { stream_.give_event(event_); }

 private:
  CudaStream& stream_;
  const cudaEvent_t event_;
};

Result<cudaStream_t> CudaStream::handle() {
  MR_TRY(make_cuda_device_current(ordinal_));
  cudaStream_t made = stream_.load(std::memory_order_acquire);
  if (made != nullptr) [[likely]]
    return made;
  MutexLock lock(start_mu_);
  made = stream_.load(std::memory_order_relaxed);
  if (made != nullptr) return made;
  MR_CUDA_TRY(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
  stream_.store(made, std::memory_order_release);
  return made;
}

Result<cudaEvent_t> CudaStream::take_event() {
  {
    MutexLock lock(events_mu_);
    if (!events_.empty()) {
      cudaEvent_t event = events_.back();
      events_.pop_back();
      return event;
    }
  }
  cudaEvent_t event = nullptr;
  MR_CUDA_TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

void CudaStream::give_event(cudaEvent_t event) {
  MutexLock lock(events_mu_);
  events_.push_back(event);
}

Result<Ref<Event>> CudaStream::record() {
  MR_TRY_ASSIGN(cudaStream_t stream, handle());
  MR_TRY_ASSIGN(cudaEvent_t event, take_event());
  Ref<CudaEvent> place = make_ref<CudaEvent>(*this, event);
  MR_CUDA_TRY(cudaEventRecord(event, stream));
  return Ref<Event>(std::move(place));
}

Status CudaStream::wait_for(Event& event) {
  MR_TRY_ASSIGN(cudaStream_t stream, handle());
  auto* const place = dynamic_cast<CudaEvent*>(&event);
  if (place == nullptr) return event.wait();  // of another kind of device
  MR_CUDA_TRY(cudaStreamWaitEvent(stream, place->event(), 0));
  return ok_status();
}

Status CudaStream::then(UniqueFunction<void(Status)> callback) {
  MR_TRY_ASSIGN(Ref<Event> reached, record());
  MutexLock lock(mu_);
  if (thread_ == nullptr) thread_ = new std::thread([this] { run(); });
  continuations_.push_back({std::move(reached), added_findings_, std::move(callback)});
  changed_.notify_one();
  return ok_status();
}

CudaStream::~CudaStream() {
  MR_CHECK(thread_ == nullptr);
  if (!make_cuda_device_current(ordinal_).ok()) return;
  for (void* memory : place_memory_) static_cast<void>(cudaFreeHost(memory));
  for (cudaEvent_t event : events_) static_cast<void>(cudaEventDestroy(event));
  if (cudaStream_t made = stream_.load()) static_cast<void>(cudaStreamDestroy(made));
}

Result<uint64_t*> CudaStream::expect_finding(Step& step, Found found) {
  constexpr size_t kPlaces = 512;
  MR_TRY(handle().status());
  MutexLock lock(mu_);
  if (places_.empty()) {
    void* more = nullptr;
    MR_CUDA_TRY(cudaHostAlloc(&more, kPlaces * sizeof(uint64_t), cudaHostAllocPortable));
    place_memory_.push_back(more);
    for (size_t i = 0; i < kPlaces; ++i) places_.push_back(static_cast<uint64_t*>(more) + i);
  }
  uint64_t* const place = places_.back();
  places_.pop_back();
  findings_.push_back({place, &step, std::move(found)});
  findings_.back().clear();
  ++added_findings_;
  return place;
}

std::deque<CudaStream::Finding> CudaStream::take_findings() {
  MutexLock lock(mu_);
  looked_at_ = added_findings_;
  return std::exchange(findings_, {});
}

void CudaStream::run() {
  while (true) {
    Continuation next;
    {
      MutexLock lock(mu_);
      while (continuations_.empty()) changed_.wait(mu_);
      next = std::move(continuations_.front());
      continuations_.pop_front();
    }
    Status reached = next.reached->wait();
    next.reached = nullptr;
    std::deque<Finding> findings;
    {
      MutexLock lock(mu_);
      for (; looked_at_ < next.findings; ++looked_at_) {
        findings.push_back(std::move(findings_.front()));
        findings_.pop_front();
      }
    }
    for (Finding& finding : findings) {
      if (reached.ok()) finding.report(*finding.step);
    }
    if (!findings.empty()) {
      MutexLock lock(mu_);
      for (Finding& finding : findings) places_.push_back(finding.place);
    }
    findings.clear();
    next.callback(std::move(reached));
  }
}

}  // namespace millrace
