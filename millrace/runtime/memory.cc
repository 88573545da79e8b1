#include "millrace/runtime/memory.h"

#include <map>
#include <utility>

namespace millrace {
namespace {

size_t index(int64_t id) { return static_cast<size_t>(id); }

// Who reads a tensor, as bits.
enum Readers : uint8_t { kNobody = 0, kHost = 1, kDevice = 2 };

bool carries(const SubNode& node, ControlFlow flow) { return node.op->traits.control_flow == flow; }

// Whether the op does with its inputs on either side: it sends them, or looks at shapes alone.
bool takes_either(const SubNode& node) {
  return node.op->traits.send || node.op->traits.metadata_only;
}

class MemoryFinder {
 public:
  explicit MemoryFinder(const Subgraph& graph) : graph_(graph) {}

  Result<TensorMemory> run() {
    MR_TRY_ASSIGN(order_, graph_.topological_order());
    uses_ = graph_.uses();
    const size_t n = index(graph_.size());
    declared_inputs_.resize(n);
    declared_outputs_.resize(n);
    readers_.resize(n);
    on_device_.resize(n);
    for (NodeId id : order_) {
      const SubNode& node = graph_.node(id);
      MR_TRY_ASSIGN(declared_inputs_[index(id)], expand_host(node.op->inputs, *node.attrs));
      MR_TRY_ASSIGN(declared_outputs_[index(id)], expand_host(node.op->outputs, *node.attrs));
      readers_[index(id)].resize(node.output_types.size());
      on_device_[index(id)].resize(node.output_types.size());
    }
    // Both only ever grow; loops need another round.
    while (find_readers()) {
    }
    while (find_outputs()) {
    }
    return result();
  }

 private:
  // Undeclared inputs (or outputs) of a forwarding node, by number.
  static std::vector<size_t> undeclared(const std::vector<bool>& declared) {
    std::vector<size_t> numbers;
    for (size_t i = 0; i < declared.size(); ++i) {
      if (!declared[i]) numbers.push_back(i);
    }
    return numbers;
  }
  // Calls each(input, output) for every pair of which the output may be the input's buffer.
  template <class Each>
  void for_each_forwarded(NodeId id, Each each) const {
    const std::vector<size_t> inputs = undeclared(declared_inputs_[index(id)]);
    const std::vector<size_t> outputs = undeclared(declared_outputs_[index(id)]);
    const bool pairs = inputs.size() == outputs.size();
    for (size_t i = 0; i < inputs.size(); ++i) {
      for (size_t k = 0; k < outputs.size(); ++k) {
        if (!pairs || i == k) each(inputs[i], outputs[k]);
      }
    }
  }

  bool find_readers() {
    bool changed = false;
    for (size_t at = order_.size(); at-- > 0;) {
      const NodeId id = order_[at];
      const SubNode& node = graph_.node(id);
      std::vector<uint8_t> wants(node.inputs.size(), kNobody);
      for (size_t i = 0; i < wants.size(); ++i) {
        if (declared_inputs_[index(id)][i]) {
          wants[i] = kHost;
        } else if (!node.op->traits.forwards && !takes_either(node)) {
          wants[i] = kDevice;
        }
      }
      if (node.op->traits.forwards) {
        for_each_forwarded(
            id, [&](size_t input, size_t output) { wants[input] |= readers_[index(id)][output]; });
      }
      for (size_t i = 0; i < wants.size(); ++i) {
        const Output from = node.inputs[i];
        uint8_t& readers = readers_[index(from.node)][index(from.index)];
        changed |= (wants[i] & ~readers) != 0;
        readers |= wants[i];
      }
    }
    return changed;
  }

  bool find_outputs() {
    bool changed = false;
    for (NodeId id : order_) {
      const SubNode& node = graph_.node(id);
      const OpTraits& traits = node.op->traits;
      if (traits.constant) continue;  // see settle_constant()
      if (!traits.forwards) {
        for (size_t k = 0; k < node.output_types.size(); ++k) {
          if (!traits.recv || readers_[index(id)][k] == kDevice) changed |= move(id, k);
        }
        continue;
      }
      // What an input is read for, by way of all outputs that it may become.
      std::vector<uint8_t> read_by(node.inputs.size(), kNobody);
      for_each_forwarded(
          id, [&](size_t input, size_t output) { read_by[input] |= readers_[index(id)][output]; });
      for_each_forwarded(id, [&](size_t input, size_t output) {
        const Output from = node.inputs[input];
        if (on_device_[index(from.node)][index(from.index)] || read_by[input] == kDevice) {
          changed |= move(id, output);
        }
      });
      if (carries(node, ControlFlow::kMerge) && on_device_[index(id)][0]) {
        for (const Output from : node.inputs) {
          const SubNode& source = graph_.node(from.node);
          if (carries(source, ControlFlow::kEnter) ||
              carries(source, ControlFlow::kNextIteration)) {
            changed |= move(from.node, 0);
          }
        }
      }
    }
    return changed;
  }

  // To device memory, unless it belongs to the host. False when it is there already.
  bool move(NodeId id, size_t output) {
    if (on_device_[index(id)][output] || declared_outputs_[index(id)][output]) return false;
    on_device_[index(id)][output] = true;
    return true;
  }

  TensorMemory result() {
    TensorMemory memory;
    const size_t n = index(graph_.size());
    memory.host_inputs = declared_inputs_;
    memory.host_outputs.resize(n);
    for (NodeId id : order_) {
      const SubNode& node = graph_.node(id);
      for (bool device : on_device_[index(id)]) memory.host_outputs[index(id)].push_back(!device);
      if (!node.op->traits.forwards) continue;
      for_each_forwarded(id, [&](size_t input, size_t output) {
        memory.host_inputs[index(id)][input] = !on_device_[index(id)][output];
      });
    }
    for (NodeId id : order_) {
      if (graph_.node(id).op->traits.constant) settle_constant(id, memory);
    }
    for (NodeId id : order_) {
      const SubNode& node = graph_.node(id);
      if (!takes_either(node)) continue;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const Output from = node.inputs[i];
        if (declared_inputs_[index(id)][i]) continue;
        memory.host_inputs[index(id)][i] = memory.host_outputs[index(from.node)][index(from.index)];
      }
    }
    return memory;
  }

  // In device memory if any reader is there.
  void settle_constant(NodeId id, TensorMemory& memory) const {
    if (declared_outputs_[index(id)][0]) return;
    bool host = true;
    for (const Subgraph::Use& use : uses_[index(id)]) {
      if (use.output < 0 || takes_either(graph_.node(use.node))) continue;
      host &= memory.host_inputs[index(use.node)][index(use.input)];
    }
    memory.host_outputs[index(id)][0] = host;
  }

  const Subgraph& graph_;
  std::vector<NodeId> order_;
  std::vector<std::vector<Subgraph::Use>> uses_;
  std::vector<std::vector<bool>> declared_inputs_, declared_outputs_;
  std::vector<std::vector<uint8_t>> readers_;  // by node and output
  std::vector<std::vector<bool>> on_device_;   // by node and output
};

class CopyAdder {
 public:
  explicit CopyAdder(Subgraph& graph) : graph_(graph) {}

  Status run() {
    MR_TRY_ASSIGN(memory_, find_memory(graph_));
    const int size = graph_.size();
    for (NodeId id = 0; id < size; ++id) {
      if (graph_.node(id).erased) continue;
      for (size_t i = 0; i < graph_.node(id).inputs.size(); ++i) MR_TRY(connect(id, i));
    }
    return ok_status();
  }

 private:
  Status connect(NodeId id, size_t input) {
    const Output from = graph_.node(id).inputs[input];
    const bool host = memory_.host_inputs[index(id)][input];
    if (memory_.host_outputs[index(from.node)][index(from.index)] == host) return ok_status();
    const bool reference = is_ref(graph_.output_type(from));
    if (reference && is_ref(graph_.node(id).input_types[input])) {
      const SubNode& node = graph_.node(id);
      return internal(node.op->name, " \"", node.name, "\" needs a variable in host memory");
    }
    Output copy;
    auto known = copies_.find({from.node, from.index});
    if (!reference && known != copies_.end()) {
      copy = known->second;
    } else {
      MR_TRY_ASSIGN(copy, add_copy(from, host));
      if (!reference) copies_.emplace(std::pair(from.node, from.index), copy);
      if (reference) wait_like_reader(copy.node, id, input);
    }
    graph_.node(id).inputs[input] = copy;
    return ok_status();
  }

  Result<Output> add_copy(Output from, bool host) {
    const SubNode source = graph_.node(from.node);
    if (source.op->traits.constant) {
      SubNode twin = source;
      twin.name = graph_.unique_name(source.name);
      return Output{graph_.add(std::move(twin)), 0};
    }
    const DType type = base_type(graph_.output_type(from));
    MR_TRY_ASSIGN(NodeId copy, graph_.add(graph_.unique_name(source.name),
                                          host ? "_CopyToHost" : "_CopyFromHost", {from}, {},
                                          {{"T", type}}, source.device));
    graph_.node(copy).origin = source.origin;
    return Output{copy, 0};
  }

  // The copy of a variable waits for what its reader waits for. A Merge waits for one input only.
  void wait_like_reader(NodeId copy, NodeId reader, size_t input) {
    const SubNode& node = graph_.node(reader);
    if (carries(node, ControlFlow::kMerge)) return;
    std::vector<NodeId> waits = node.control_inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (i != input) waits.push_back(node.inputs[i].node);
    }
    graph_.node(copy).control_inputs = std::move(waits);
  }

  Subgraph& graph_;
  TensorMemory memory_;
  std::map<std::pair<NodeId, int32_t>, Output> copies_;
};

}  // namespace

Result<TensorMemory> find_memory(const Subgraph& graph) { return MemoryFinder(graph).run(); }

Status add_copies(Subgraph& graph) { return CopyAdder(graph).run(); }

}  // namespace millrace
