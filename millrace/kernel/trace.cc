#include "millrace/kernel/trace.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <tuple>

#include "millrace/base/clock.h"
#include "millrace/base/mutex.h"
#include "millrace/base/str_cat.h"
#include "millrace/graph/op_def.h"
#include "millrace/kernel/kernel.h"

namespace millrace {
namespace {

struct ThreadBuffer {
  explicit ThreadBuffer(uint32_t id) : thread(id) {}
  const uint32_t thread;
  Mutex mu;  // taken by others only when the events are read
  std::vector<TraceEvent> events MR_GUARDED_BY(mu);
  std::vector<TraceCall> calls MR_GUARDED_BY(mu);
};

// Who is at the other end of a send or a receive, and what it is about.
void add_transfer(const KernelNode& node, TraceEvent& event) {
  const bool sends = node.op->traits.send;
  Result<std::string> peer = node.attr<std::string>(sends ? "recv_device" : "send_device");
  if (peer.ok()) event.peer = *std::move(peer);
  Result<std::string> tensor = node.attr<std::string>("tensor_name");
  if (tensor.ok()) event.tensor = *std::move(tensor);
}

void append_events(const TraceCall& call, uint32_t thread, std::vector<TraceEvent>& events) {
  const KernelNode& node = *call.node;
  TraceEvent event;
  event.thread = thread;
  event.node = node.name;
  event.op = node.op->name;
  event.device = node.device->name();
  if (node.op->traits.send || node.op->traits.recv) add_transfer(node, event);
  if (call.scheduled_ns != 0) {
    event.kind = TraceEvent::Kind::kQueueWait;
    event.start_ns = call.scheduled_ns;
    event.end_ns = call.start_ns;
    events.push_back(event);
    event.scheduled_ns = call.scheduled_ns;
  }
  event.kind = node.op->traits.recv ? TraceEvent::Kind::kRecvWait : TraceEvent::Kind::kKernel;
  event.start_ns = call.start_ns;
  event.end_ns = call.end_ns;
  event.allocated_bytes = call.allocated_bytes;
  event.origin = call.origin;
  event.blocks = call.blocks;
  events.push_back(std::move(event));
}

uint64_t next_collector_id() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// The collector this thread wrote to last. Ids are never used again, so a stale entry is never hit.
struct LastBuffer {
  uint64_t collector = 0;
  ThreadBuffer* buffer = nullptr;
};
thread_local LastBuffer last_buffer;

void append_json(std::string& out, std::string_view text) {
  out += '"';
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += "0123456789abcdef"[byte >> 4];
      out += "0123456789abcdef"[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

// Microseconds with three decimals.
void append_micros(std::string& out, int64_t ns) {
  if (ns < 0) ns = 0;
  append_to(out, ns / 1000);
  out += '.';
  int64_t rest = ns % 1000;
  out += static_cast<char>('0' + rest / 100);
  out += static_cast<char>('0' + rest / 10 % 10);
  out += static_cast<char>('0' + rest % 10);
}

std::string_view category(TraceEvent::Kind kind) {
  switch (kind) {
    case TraceEvent::Kind::kKernel:
      return "kernel";
    case TraceEvent::Kind::kQueueWait:
      return "queue wait";
    case TraceEvent::Kind::kCopy:
      return "copy";
    case TraceEvent::Kind::kRecvWait:
      return "receive wait";
    case TraceEvent::Kind::kCall:
      return "call";
  }
  return "?";
}

// Tracks that look alike to a reader; each has lanes, so that what overlaps is drawn side by side.
struct TrackGroup {
  std::vector<int> lanes;           // track numbers
  std::vector<int64_t> busy_until;  // one per lane
};

class TraceWriter {
 public:
  std::string write(const std::vector<TraceEvent>& events) {
    out_ = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
    int64_t origin = events.empty() ? 0 : events.front().start_ns;
    for (const TraceEvent& event : events) origin = std::min(origin, event.start_ns);
    for (const TraceEvent& event : events) write_event(event, origin);
    write_arrows(origin);
    out_ += "\n]}\n";
    return std::move(out_);
  }

 private:
  void begin(std::string_view phase, int process, int track) {
    out_ += first_ ? "\n" : ",\n";
    first_ = false;
    out_ += str_cat("{\"ph\":\"", phase, "\",\"pid\":", process, ",\"tid\":", track);
  }

  void write_name(std::string_view what, int process, int track, std::string_view name) {
    begin("M", process, track);
    out_ += str_cat(",\"name\":\"", what, "\",\"args\":{\"name\":");
    append_json(out_, name);
    out_ += "}}";
  }

  int process_of(const std::string& device) {
    auto [it, added] = processes_.emplace(device, static_cast<int>(processes_.size()) + 1);
    if (added) write_name("process_name", it->second, 0, device);
    return it->second;
  }

  int track_of(const TraceEvent& event, int process) {
    uint32_t thread = event.kind == TraceEvent::Kind::kKernel ? event.thread : 0;
    TrackGroup& group = groups_[{process, event.kind, thread}];
    size_t lane = 0;
    while (lane < group.lanes.size() && group.busy_until[lane] > event.start_ns) ++lane;
    if (lane == group.lanes.size()) {
      int track = ++last_track_;
      group.lanes.push_back(track);
      group.busy_until.push_back(0);
      std::string name(category(event.kind));
      name += 's';
      if (thread != 0) name += str_cat(", thread ", thread);
      if (lane > 0) name += str_cat(" (", lane + 1, ")");
      write_name("thread_name", process, track, name);
    }
    group.busy_until[lane] = std::max(event.start_ns, event.end_ns);
    return group.lanes[lane];
  }

  void write_event(const TraceEvent& event, int64_t origin) {
    int process = process_of(event.device);
    int track = track_of(event, process);
    note_transfer(event, process, track);
    begin("X", process, track);
    out_ += ",\"name\":";
    append_json(out_, event.op.empty() ? event.node : event.op);
    out_ += str_cat(",\"cat\":\"", category(event.kind), "\",\"ts\":");
    append_micros(out_, event.start_ns - origin);
    out_ += ",\"dur\":";
    append_micros(out_, event.end_ns - event.start_ns);
    out_ += ",\"args\":{\"name\":";
    append_json(out_, event.node);
    out_ += str_cat(",\"thread\":", event.thread);
    if (event.allocated_bytes != 0) {
      out_ += str_cat(",\"allocated_bytes\":", event.allocated_bytes);
    }
    if (!event.peer.empty()) {
      out_ += ",\"tensor\":";
      append_json(out_, event.tensor);
      out_ += event.kind == TraceEvent::Kind::kRecvWait ? ",\"from\":" : ",\"to\":";
      append_json(out_, event.peer);
    }
    out_ += "}}";
  }

  void note_transfer(const TraceEvent& event, int process, int track) {
    if (event.peer.empty() || event.kind == TraceEvent::Kind::kQueueWait) return;
    const bool receives = event.kind == TraceEvent::Kind::kRecvWait;
    Transfer& transfer = receives ? transfers_[{event.tensor, event.peer, event.device}]
                                  : transfers_[{event.tensor, event.device, event.peer}];
    // An arrow begins and ends inside of what it joins.
    const int64_t last = std::max(event.start_ns, event.end_ns - 1);
    (receives ? transfer.received : transfer.sent)
        .push_back({process, track, receives ? last : event.start_ns});
  }

  // In a loop a tensor is sent once in each iteration: in that order.
  void write_arrows(int64_t origin) {
    int number = 0;
    for (const auto& [key, transfer] : transfers_) {
      const size_t count = std::min(transfer.sent.size(), transfer.received.size());
      for (size_t i = 0; i < count; ++i) {
        write_end(transfer.sent[i], "s", ++number, origin);
        write_end(transfer.received[i], "f\",\"bp\":\"e", number, origin);
      }
    }
  }

  struct TransferEnd {
    int process = 0;
    int track = 0;
    int64_t at_ns = 0;
  };
  void write_end(const TransferEnd& end, std::string_view phase, int number, int64_t origin) {
    begin(phase, end.process, end.track);
    out_ += str_cat(",\"name\":\"tensor\",\"cat\":\"transfer\",\"id\":", number, ",\"ts\":");
    append_micros(out_, end.at_ns - origin);
    out_ += '}';
  }

  struct Transfer {
    std::vector<TransferEnd> sent, received;
  };

  std::string out_;
  bool first_ = true;
  int last_track_ = 0;
  std::map<std::string, int> processes_;
  // By tensor, sender and receiver.
  std::map<std::tuple<std::string, std::string, std::string>, Transfer> transfers_;
  std::map<std::tuple<int, TraceEvent::Kind, uint32_t>, TrackGroup> groups_;
};

}  // namespace

uint32_t trace_thread_id() {
  static std::atomic<uint32_t> last{0};
  thread_local uint32_t id = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return id;
}

struct TraceCollector::Impl {
  const uint64_t id = next_collector_id();
  const int64_t wall_offset_ns = wall_micros() * 1000 - monotonic_nanos();
  Mutex mu;
  std::vector<std::unique_ptr<ThreadBuffer>> buffers MR_GUARDED_BY(mu);
  std::vector<Ref<const RefCounted>> kept MR_GUARDED_BY(mu);

  ThreadBuffer& buffer_of_this_thread() {
    if (last_buffer.collector == id) return *last_buffer.buffer;
    uint32_t thread = trace_thread_id();
    MutexLock lock(mu);
    auto it = std::find_if(buffers.begin(), buffers.end(),
                           [&](const auto& buffer) { return buffer->thread == thread; });
    if (it == buffers.end()) {
      it = buffers.insert(buffers.end(), std::make_unique<ThreadBuffer>(thread));
    }
    last_buffer = {id, it->get()};
    return **it;
  }
};

TraceCollector::TraceCollector() : impl_(new Impl) {}
TraceCollector::~TraceCollector() { delete impl_; }

void TraceCollector::record(TraceEvent event) {
  ThreadBuffer& buffer = impl_->buffer_of_this_thread();
  if (event.thread == 0) event.thread = buffer.thread;
  MutexLock lock(buffer.mu);
  buffer.events.push_back(std::move(event));
}

void TraceCollector::record(TraceCall call) {
  ThreadBuffer& buffer = impl_->buffer_of_this_thread();
  MutexLock lock(buffer.mu);
  constexpr size_t kMany = 128;
  if (buffer.calls.empty()) buffer.calls.reserve(kMany);
  buffer.calls.push_back(std::move(call));
}

void TraceCollector::keep(Ref<const RefCounted> owner) {
  MutexLock lock(impl_->mu);
  // A function is called again and again.
  if (!impl_->kept.empty() && impl_->kept.back().get() == owner.get()) return;
  impl_->kept.push_back(std::move(owner));
}

std::vector<TraceEvent> TraceCollector::events() const {
  std::vector<TraceEvent> all;
  {
    MutexLock lock(impl_->mu);
    for (const auto& buffer : impl_->buffers) {
      MutexLock buffer_lock(buffer->mu);
      all.insert(all.end(), buffer->events.begin(), buffer->events.end());
      for (const TraceCall& call : buffer->calls) append_events(call, buffer->thread, all);
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return a.start_ns < b.start_ns;
  });
  return all;
}

int64_t TraceCollector::wall_offset_ns() const { return impl_->wall_offset_ns; }

std::string chrome_trace(const std::vector<TraceEvent>& events) {
  return TraceWriter().write(events);
}

}  // namespace millrace
