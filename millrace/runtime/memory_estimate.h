#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/runtime/subgraph.h"

namespace millrace {

// A tensor that a run makes, and how large it is.
struct SizedTensor {
  Output from;
  int64_t bytes = 0;
};

// What a run of a graph is thought to hold at once, as far as sizes follow from what is fed, from
// constants and from what variables declare. Variables, constants and feeds do not count, nor what
// kernels need for themselves; nor do the iterations of loops but for one.
struct MemoryEstimate {
  int64_t peak_bytes = 0;
  NodeId peak_at = -1;               // the node that runs then; -1: nothing is held
  int64_t unknown = 0;               // so many tensors are of a size that is not known
  std::vector<SizedTensor> at_peak;  // the largest of those alive then, at most kLargest

  static constexpr size_t kLargest = 10;
};

// In the order in which the straight gear runs it. INVALID_ARGUMENT for a cycle.
Result<MemoryEstimate> estimate_memory(const Subgraph& graph);

// For people: the peak, and a line for each of the largest, with the line of the user's program.
std::string to_string(const MemoryEstimate& estimate, const Subgraph& graph);

// Bytes by node and output. Of what is not plain 0.
struct OutputBytes {
  std::vector<std::vector<int64_t>> sizes;  // -1: not known
  std::vector<std::vector<int64_t>> made;   // 0 for what is not the run's own memory, or not known
};
Result<OutputBytes> output_bytes(const Subgraph& graph);

// When memory is taken and given back again: the buffers that outputs share, and when each dies.
// For who tries orders of its own.
class MemoryTimeline {
 public:
  // A run of a node. Of a node that runs again, as `again`; an input is read from the run that
  // reads_again says, bit by input; inputs past 63 are of the first run.
  struct Item {
    NodeId node = -1;
    bool again = false;
    uint64_t reads_again = 0;
  };
  // `graph` and `bytes` (OutputBytes::made) are to outlive it.
  MemoryTimeline(const Subgraph& graph, const std::vector<std::vector<int64_t>>& bytes);

  struct Peak {
    int64_t bytes = 0;
    size_t at = 0;  // an index into the items
  };
  // Of the items in this order.
  Peak peak(const std::vector<Item>& items);
  // After peak(): whether the memory of a first run's output is held while item `at` runs.
  bool alive(Output output, size_t at) const;

 private:
  // Where output `o` of a run lies.
  size_t place(Output o, bool again) const {
    return first_[static_cast<size_t>(o.node)] + static_cast<size_t>(o.index) +
           (again ? outputs_ : 0);
  }
  void find_owners(const std::vector<Item>& items);

  const Subgraph& graph_;
  const std::vector<std::vector<int64_t>>& bytes_;
  std::vector<size_t> first_;  // by node: of its outputs
  size_t outputs_ = 0;
  // By place: whose memory it is, how large that is, and when it is first and last used.
  std::vector<size_t> owner_;
  std::vector<int64_t> size_;
  std::vector<int64_t> begin_, end_;
};

}  // namespace millrace
