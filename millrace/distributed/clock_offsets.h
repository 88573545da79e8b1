#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"
#include "millrace/distributed/worker_interface.h"

namespace millrace {

// When one call happened, by the clocks of both ends, each of which counts nanoseconds since a
// moment of its own: monotonic_nanos().
struct ClockSample {
  int64_t sent_ns = 0;      // ours, before it was made
  int64_t received_ns = 0;  // theirs, once it was there
  int64_t answered_ns = 0;  // theirs, before the answer went
  int64_t returned_ns = 0;  // ours, once that was there
};

struct ClockOffset {
  int64_t offset_ns = 0;       // theirs less ours
  int64_t uncertainty_ns = 0;  // the true offset is no further from it
};

// How far the clocks of other processes are from ours, as calls tell: a call cannot arrive before
// it was made, nor its answer before it went. The middle of what is possible is the estimate; of
// several calls, the one with the shortest way counts, for as long as clocks that drift apart by
// one in 10,000 do not make it worse than a newer one. Thread-safe.
class ClockOffsets : public RefCounted {
 public:
  // A call to a task. False for times that cannot be, of an answer before its question for one:
  // they say nothing.
  bool add(std::string_view task, const ClockSample& sample);
  // The offset at the moment `now_ns` of our clock; none where no call is known.
  std::optional<ClockOffset> estimate(std::string_view task, int64_t now_ns) const;

  // Asks a task for its time, some calls one after the other. Does not wait for them.
  void ask(std::string task, Ref<WorkerInterface> worker);

 private:
  struct Measured {
    ClockOffset offset;
    int64_t at_ns = 0;  // ours

    int64_t uncertainty_at(int64_t now_ns) const;
  };
  void ask(std::string task, Ref<WorkerInterface> worker, int times);

  mutable Mutex mu_;
  std::map<std::string, std::vector<Measured>, std::less<>> by_task_ MR_GUARDED_BY(mu_);
};

}  // namespace millrace
