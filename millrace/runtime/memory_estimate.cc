#include "millrace/runtime/memory_estimate.h"

#include <algorithm>

#include "millrace/base/str_cat.h"
#include "millrace/graph/origin.h"
#include "millrace/runtime/subgraph_facts.h"
#include "millrace/tensor/dtype.h"

namespace millrace {
namespace {

size_t index(NodeId id) { return static_cast<size_t>(id); }

// What is not the run's own: the client's, the plan's or a variable's.
bool held_elsewhere(const Subgraph& graph, const SubNode& node) {
  const OpTraits& traits = node.op->traits;
  if (traits.argument || traits.constant || traits.owns_state) return true;
  // A variable that is read: its buffer is handed out.
  return std::any_of(node.inputs.begin(), node.inputs.end(), [&](Output o) {
    const DType type = graph.output_type(o);
    return is_ref(type) || type == DType::kResource;
  });
}

int64_t bytes_of(const TensorFacts& facts, DType type) {
  type = base_type(type);
  if (!is_plain(type)) return 0;
  const int64_t elements = facts.shape.num_elements();
  int64_t bytes;
  if (elements < 0 ||
      __builtin_mul_overflow(elements, static_cast<int64_t>(dtype_size(type)), &bytes)) {
    return -1;
  }
  return bytes;
}

// The input whose memory output `k` is for certain; -1: none.
int forwarded_input(const SubNode& node, int k) {
  if (!node.op->traits.forwards || node.inputs.empty()) return -1;
  return node.inputs.size() == node.output_types.size() ? k : 0;
}

}  // namespace

Result<OutputBytes> output_bytes(const Subgraph& graph) {
  SubgraphFacts facts(/*declared=*/true);
  MR_TRY(facts.update(graph));
  OutputBytes bytes;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const SubNode& node = graph.node(id);
    std::vector<int64_t>& sizes = bytes.sizes.emplace_back(node.output_types.size(), 0);
    std::vector<int64_t>& made = bytes.made.emplace_back(node.output_types.size(), 0);
    if (node.erased) continue;
    const bool own = !held_elsewhere(graph, node);
    for (size_t k = 0; k < sizes.size(); ++k) {
      const DType type = node.output_types[k];
      sizes[k] = bytes_of(facts.of({id, static_cast<int32_t>(k)}), type);
      if (own && !is_ref(type)) made[k] = std::max<int64_t>(sizes[k], 0);
    }
  }
  return bytes;
}

MemoryTimeline::MemoryTimeline(const Subgraph& graph,
                               const std::vector<std::vector<int64_t>>& bytes)
    : graph_(graph), bytes_(bytes) {
  for (NodeId id = 0; id < graph.size(); ++id) {
    first_.push_back(outputs_);
    outputs_ += graph.node(id).output_types.size();
  }
}

void MemoryTimeline::find_owners(const std::vector<Item>& items) {
  owner_.assign(2 * outputs_, 0);
  size_.assign(2 * outputs_, 0);
  begin_.assign(2 * outputs_, -1);
  end_.assign(2 * outputs_, -1);
  for (size_t at = 0; at < items.size(); ++at) {
    const Item& item = items[at];
    const SubNode& node = graph_.node(item.node);
    auto read_from = [&](size_t i) {
      return place(node.inputs[i], i < 64 && ((item.reads_again >> i) & 1) != 0);
    };
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const size_t from = read_from(i);
      if (begin_[from] >= 0) end_[owner_[from]] = static_cast<int64_t>(at);
    }
    for (size_t k = 0; k < node.output_types.size(); ++k) {
      const size_t here = place({item.node, static_cast<int32_t>(k)}, item.again);
      const int input = forwarded_input(node, static_cast<int>(k));
      const bool shares = input >= 0 && begin_[read_from(static_cast<size_t>(input))] >= 0;
      owner_[here] = shares ? owner_[read_from(static_cast<size_t>(input))] : here;
      if (!shares) size_[here] = bytes_[index(item.node)][k];
      begin_[here] = static_cast<int64_t>(at);
      end_[owner_[here]] = static_cast<int64_t>(at);
    }
  }
}

MemoryTimeline::Peak MemoryTimeline::peak(const std::vector<Item>& items) {
  find_owners(items);
  Peak peak;
  int64_t held = 0;
  for (size_t at = 0; at < items.size(); ++at) {
    const Item& item = items[at];
    const SubNode& node = graph_.node(item.node);
    int64_t made = 0;
    for (size_t k = 0; k < node.output_types.size(); ++k) {
      const size_t here = place({item.node, static_cast<int32_t>(k)}, item.again);
      if (owner_[here] == here) made += size_[here];
    }
    // What nobody reads any more, an input once even where it is read twice.
    int64_t gone = 0, reused = 0;
    std::vector<size_t> seen;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const bool again = i < 64 && ((item.reads_again >> i) & 1) != 0;
      const size_t from = place(node.inputs[i], again);
      if (begin_[from] < 0) continue;
      const size_t owner = owner_[from];
      if (end_[owner] != static_cast<int64_t>(at)) continue;
      if (std::find(seen.begin(), seen.end(), owner) != seen.end()) continue;
      seen.push_back(owner);
      gone += size_[owner];
      const bool in_place = i < 32 && ((node.op->traits.may_alias >> i) & 1) != 0;
      if (in_place && size_[owner] == made) reused = made;
    }
    held += made - reused;
    if (held > peak.bytes) peak = {held, at};
    for (size_t k = 0; k < node.output_types.size(); ++k) {
      const size_t here = place({item.node, static_cast<int32_t>(k)}, item.again);
      if (owner_[here] != here || end_[here] != static_cast<int64_t>(at)) continue;
      gone += size_[here];
    }
    held -= gone - reused;
  }
  return peak;
}

bool MemoryTimeline::alive(Output output, size_t at) const {
  const size_t here = place(output, /*again=*/false);
  if (begin_[here] < 0) return false;
  const size_t owner = owner_[here];
  return begin_[owner] <= static_cast<int64_t>(at) && static_cast<int64_t>(at) <= end_[owner];
}

Result<MemoryEstimate> estimate_memory(const Subgraph& graph) {
  MR_TRY_ASSIGN(const std::vector<NodeId> order, graph.topological_order());
  MR_TRY_ASSIGN(const OutputBytes bytes, output_bytes(graph));
  std::vector<MemoryTimeline::Item> items;
  for (NodeId id : order) items.push_back({id});
  MemoryTimeline timeline(graph, bytes.made);
  const MemoryTimeline::Peak peak = timeline.peak(items);
  MemoryEstimate estimate;
  estimate.peak_bytes = peak.bytes;
  if (peak.bytes > 0) estimate.peak_at = order[peak.at];
  for (NodeId id : order) {
    const std::vector<int64_t>& made = bytes.made[index(id)];
    for (size_t k = 0; k < made.size(); ++k) {
      const Output o{id, static_cast<int32_t>(k)};
      estimate.unknown += bytes.sizes[index(id)][k] < 0;
      // Of what shares memory the first is named.
      const bool own = forwarded_input(graph.node(id), static_cast<int>(k)) < 0;
      if (made[k] > 0 && own && timeline.alive(o, peak.at)) {
        estimate.at_peak.push_back({o, made[k]});
      }
    }
  }
  const size_t kept = std::min(estimate.at_peak.size(), MemoryEstimate::kLargest);
  std::partial_sort(estimate.at_peak.begin(),
                    estimate.at_peak.begin() + static_cast<std::ptrdiff_t>(kept),
                    estimate.at_peak.end(),
                    [](const SizedTensor& a, const SizedTensor& b) { return a.bytes > b.bytes; });
  estimate.at_peak.resize(kept);
  return estimate;
}

std::string to_string(const MemoryEstimate& estimate, const Subgraph& graph) {
  std::string out = str_cat("memory: at most about ", estimate.peak_bytes, " bytes");
  if (estimate.peak_at >= 0) append_to(out, str_cat(", at ", graph.node(estimate.peak_at).name));
  if (estimate.unknown > 0) {
    append_to(out, str_cat("; ", estimate.unknown, " tensors of a size that is not known"));
  }
  out += '\n';
  for (const SizedTensor& tensor : estimate.at_peak) {
    const SubNode& node = graph.node(tensor.from.node);
    append_to(out, str_cat("  ", tensor.bytes, " ", node.op->name, " ", node.name, ":",
                           tensor.from.index, "  ", describe_origin(node.origin), "\n"));
  }
  return out;
}

}  // namespace millrace
