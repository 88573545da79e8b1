#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/ref.h"
#include "millrace/graph/origin.h"

namespace tensorflow {
class StepStats;
}

namespace millrace {

struct KernelNode;

// Something a step did, or waited for, from start to end. Times are of monotonic_nanos().
struct TraceEvent {
  enum class Kind : uint8_t {
    kKernel,
    kQueueWait,  // ready to run, until a thread took it
    kCopy,       // between memories
    kRecvWait,   // for a tensor of another device
    kCall,       // of a master to another task, whose name is `device`: of its run of a graph
  };

  Kind kind = Kind::kKernel;
  uint32_t thread = 0;  // see trace_thread_id(); 0: set by record()
  std::string node;
  std::string op;
  std::string device;  // full name
  // Of what sends or receives: the device at the other end, and what the tensor is called there
  // too.
  std::string peer;
  std::string tensor;
  int64_t scheduled_ns = 0;  // when the node was ready; 0: not known
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t allocated_bytes = 0;
  OriginId origin = 0;  // of the node

  // The memory of a tensor that the kernel read or made, where that is known.
  struct Block {
    const void* buffer = nullptr;
    int64_t bytes = 0;
    int32_t output = -1;     // its number; -1: it was read
    bool exclusive = false;  // nobody else held it when the kernel was over
  };
  std::vector<Block> blocks;
};

// What the tensors that a run made held at once, by what its events say of memory. Without what was
// there before it, such as variables, and without what kernels need for themselves.
struct TraceMemory {
  static constexpr size_t kLargest = 10;
  struct Made {
    std::string node;
    int32_t output = 0;
    int64_t bytes = 0;
    OriginId origin = 0;
  };
  int64_t peak_bytes = 0;
  std::vector<Made> largest;  // of those that were there at the peak, the largest first
};
TraceMemory memory_of(const std::vector<TraceEvent>& events);
// For people: the peak, and a line for each of the largest with the line of the user's program.
std::string to_string(const TraceMemory& memory);

// A small number for the calling thread, the same for as long as it lives.
uint32_t trace_thread_id();

// A call of a kernel, as one event, or two where it waited in a queue. What it is called is asked
// of its node when events are read, so that a traced step does little between its kernels.
struct TraceCall {
  const KernelNode* node = nullptr;
  OriginId origin = 0;
  int64_t scheduled_ns = 0;  // as in TraceEvent
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t allocated_bytes = 0;
  std::vector<TraceEvent::Block> blocks;
};

// Collects the events of one step. Each thread writes to a buffer of its own, so threads do not
// wait for each other. Thread-safe.
class TraceCollector : public RefCounted {
 public:
  TraceCollector();

  // Keeps the event, with the calling thread's number where it has none.
  void record(TraceEvent event);
  // The same of a call; its node stays as long as something that keep() was told of.
  void record(TraceCall call);
  // Keeps `owner` for as long as there is this collector.
  void keep(Ref<const RefCounted> owner);
  // What was recorded so far, by start time.
  std::vector<TraceEvent> events() const;

  // What to add to a time of an event to get nanoseconds since 1970.
  int64_t wall_offset_ns() const;

 protected:
  ~TraceCollector() override;

 private:
  struct Impl;
  Impl* impl_;
};

// The text of a trace file that Chrome and Perfetto open. A process per device; in it, tracks for
// the kernels of each thread, and for queue waits, copies and receive waits, with as many tracks of
// a kind as events overlap; arrows from what sends a tensor to what receives it. Times count from
// the first event.
std::string chrome_trace(const std::vector<TraceEvent>& events);

// Adds the kernels, receives, copies and calls to `stats`, by device; copies go to
// "<device>/memcpy", calls to "<task>/call". The queue wait of a kernel is the time between
// scheduled and start.
void to_step_stats(const std::vector<TraceEvent>& events, int64_t wall_offset_ns,
                   tensorflow::StepStats& stats);

}  // namespace millrace
