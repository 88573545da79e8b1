#include <algorithm>
#include <map>
#include <unordered_map>

#include "millrace/base/str_cat.h"
#include "millrace/kernel/trace.h"

namespace millrace {
namespace {

// A buffer, from the kernel that made it to the end of the last that read it.
struct Life {
  const TraceEvent* maker;
  int32_t output;
  int64_t bytes;
  int64_t begin, end;
};

std::vector<Life> lives_in(const std::vector<TraceEvent>& events) {
  std::vector<const TraceEvent*> by_end;
  for (const TraceEvent& event : events) by_end.push_back(&event);
  std::stable_sort(by_end.begin(), by_end.end(),
                   [](const TraceEvent* a, const TraceEvent* b) { return a->end_ns < b->end_ns; });
  std::vector<Life> lives;
  std::unordered_map<const void*, size_t> last;  // by buffer, which others may have again later
  for (const TraceEvent* event : by_end) {
    std::vector<const void*> read;
    for (const TraceEvent::Block& block : event->blocks) {
      if (block.output >= 0) continue;
      read.push_back(block.buffer);
      if (auto it = last.find(block.buffer); it != last.end())
        lives[it->second].end = event->end_ns;
    }
    for (const TraceEvent::Block& block : event->blocks) {
      if (block.output < 0 || !block.exclusive) continue;
      if (std::find(read.begin(), read.end(), block.buffer) != read.end()) continue;
      last[block.buffer] = lives.size();
      lives.push_back({event, block.output, block.bytes, event->start_ns, event->end_ns});
    }
  }
  return lives;
}

}  // namespace

TraceMemory memory_of(const std::vector<TraceEvent>& events) {
  const std::vector<Life> lives = lives_in(events);
  std::map<int64_t, int64_t> changes;  // by time: bytes that come, less those that go
  for (const Life& life : lives) {
    changes[life.begin] += life.bytes;
    changes[life.end + 1] -= life.bytes;
  }
  TraceMemory memory;
  int64_t held = 0, peak_ns = 0;
  for (const auto& [ns, change] : changes) {
    held += change;
    if (held <= memory.peak_bytes) continue;
    memory.peak_bytes = held;
    peak_ns = ns;
  }
  for (const Life& life : lives) {
    if (life.begin > peak_ns || life.end < peak_ns) continue;
    memory.largest.push_back({life.maker->node, life.output, life.bytes, life.maker->origin});
  }
  std::stable_sort(memory.largest.begin(), memory.largest.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  if (memory.largest.size() > TraceMemory::kLargest) memory.largest.resize(TraceMemory::kLargest);
  return memory;
}

std::string to_string(const TraceMemory& memory) {
  std::string out = str_cat("memory: at most ", memory.peak_bytes, " bytes\n");
  for (const TraceMemory::Made& made : memory.largest) {
    append_to(out, str_cat("  ", made.bytes, " ", made.node, ":", made.output, "  ",
                           describe_origin(made.origin), "\n"));
  }
  return out;
}

}  // namespace millrace
