#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/cancellation.h"
#include "millrace/base/function.h"
#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/kernel/collectives.h"
#include "millrace/kernel/update_log.h"
#include "millrace/kernel/value.h"

namespace millrace {

// Where the two ends of an edge between devices meet, within one step. A key names one tensor:
// "<send device>;<incarnation, 16 hex digits>;<receive device>;<tensor name>;<frame>:<iteration>".
// Each key is sent once and received once, in either order; neither side holds a thread while it
// waits. Thread-safe.
class Rendezvous : public RefCounted {
 public:
  using Done = UniqueFunction<void(Status, Value)>;  // the value is a tensor or dead

  // ABORTED for a second send on a key, or the status given to abort().
  virtual Status send(std::string_view key, Value value) = 0;
  // Calls `done` once, when the value has come, the rendezvous is aborted, or `cancel` (may be
  // null) is cancelled; perhaps before it returns. ABORTED for a second receive on a key.
  virtual void recv(std::string_view key, Ref<CancellationToken> cancel, Done done) = 0;
  // Ends every wait, now and later, with `reason` (an error). The first reason stays.
  virtual void abort(Status reason) = 0;
  // The keys that somebody waits for: what a step that is late is told by.
  virtual std::vector<std::string> waiting() const = 0;

  // Kernels of the step that wait for something else than a key: a queue, a file, a function. The
  // one who waits has the memory, from begin_wait() until end_wait().
  struct KernelWait {
    std::string_view op, node;
    KernelWait* next = nullptr;
    KernelWait* previous = nullptr;
  };
  void begin_wait(KernelWait& wait);
  void end_wait(KernelWait& wait);
  // Those that wait now: `QueueDequeueV2 "dequeue"`.
  std::vector<std::string> waiting_kernels() const;

  // Of a run that may be tried again: who it is, for those who start its parts, and for who runs a
  // part what the run has changed; null: nothing is noted. Set before the run begins.
  UpdateId update;
  Ref<UpdateLog> updates;

  // Of a step that a task of a cluster runs: how its kernels compute with those of other tasks; see
  // find_collectives(). Set before the run begins.
  Ref<Collectives> collectives;

 private:
  mutable Mutex waits_mu_;
  KernelWait* waits_ MR_GUARDED_BY(waits_mu_) = nullptr;
};

// One in this process's memory.
Ref<Rendezvous> make_local_rendezvous();

// The number that stands in keys for the frame `name` started from `iteration` of frame `parent`;
// the same in every process. 0 is the root's alone.
uint64_t frame_id(uint64_t parent, uint64_t iteration, std::string_view name);

struct RendezvousKey {
  std::string send_device;
  uint64_t incarnation = 0;
  std::string recv_device;
  std::string tensor_name;
  uint64_t frame = 0;
  uint64_t iteration = 0;

  std::string to_string() const;
  // INVALID_ARGUMENT unless the text has exactly five parts of the right form.
  static Result<RendezvousKey> parse(std::string_view text);

  friend bool operator==(const RendezvousKey&, const RendezvousKey&) = default;
};

}  // namespace millrace
