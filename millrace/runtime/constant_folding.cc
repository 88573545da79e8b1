#include <algorithm>
#include <unordered_set>

#include "millrace/runtime/fold_kernel.h"
#include "millrace/runtime/optimize.h"

namespace millrace {
namespace {

// Intermediate values held at once, as a multiple of the largest constant allowed.
constexpr int64_t kHeldFactor = 16;

size_t index(NodeId id) { return static_cast<size_t>(id); }

int64_t bytes_of(const Tensor& tensor) {
  int64_t bytes = static_cast<int64_t>(tensor.bytes());
  if (tensor.dtype() != DType::kString) return bytes;
  for (const std::string& s : tensor.data<std::string>()) bytes += static_cast<int64_t>(s.size());
  return bytes;
}

bool foldable_type(DType type) {
  return !is_ref(type) && (is_plain(type) || type == DType::kString);
}

class Folder {
 public:
  Folder(Subgraph& graph, const OptimizeOptions& options)
      : graph_(graph),
        options_(options),
        kernels_(options.kernels != nullptr ? *options.kernels : KernelRegistry::global()),
        kernel_folder_(*options.cpu, kernels_, options.max_folding_ms) {}

  Result<bool> run() {
    MR_TRY_ASSIGN(std::vector<NodeId> order, graph_.topological_order());
    values_.resize(index(graph_.size()));
    bool any = false;
    for (NodeId id : order) {
      if (!may_fold(id)) continue;
      Result<std::vector<Tensor>> value = value_of(graph_.node(id));
      if (!value.ok()) continue;
      for (const Tensor& tensor : *value) held_ += bytes_of(tensor);
      values_[index(id)] = std::move(value).value();
      any |= !graph_.node(id).op->traits.constant;
    }
    if (!any) return false;
    uses_ = graph_.uses();
    for (auto it = order.rbegin(); it != order.rend(); ++it) give_up_if_large(*it);
    return replace(order);
  }

 private:
  bool folded(NodeId id) const { return !values_[index(id)].empty(); }

  bool may_fold(NodeId id) const {
    const SubNode& node = graph_.node(id);
    const OpTraits& t = node.op->traits;
    if (t.stateful || t.owns_state || t.step_state || t.blocks || t.send || t.recv || t.argument ||
        t.result || t.placeholder || t.control_flow != ControlFlow::kNone || node.op->unknown ||
        node.op_owner || node.output_types.empty()) {
      return false;
    }
    if (!std::all_of(node.output_types.begin(), node.output_types.end(), foldable_type))
      return false;
    if (t.constant) return node.control_inputs.empty();
    if (node.inputs.empty() && node.control_inputs.empty()) return false;
    for (Output input : node.inputs) {
      if (!folded(input.node)) return false;
    }
    for (NodeId c : node.control_inputs) {
      if (!folded(c)) return false;
    }
    for (DType type : node.input_types) {
      if (is_ref(type)) return false;
    }
    for (const auto& [name, value] : *node.attrs) {
      if (value.get<FunctionAttr>() != nullptr || value.get<std::vector<FunctionAttr>>() != nullptr)
        return false;
    }
    if (held_ > options_.max_constant_bytes * kHeldFactor) return false;
    return runs_on_cpu(node);
  }

  // Another kind of device may round differently.
  bool runs_on_cpu(const SubNode& node) const {
    const Result<DeviceName>& device = graph_.devices().parsed(node.device);
    return device.ok() && (!device->type || *device->type == device_type(DeviceKind::kCpu)) &&
           kernels_.any(node.op->name, DeviceKind::kCpu, *node.attrs);
  }

  Result<std::vector<Tensor>> value_of(const SubNode& node) {
    if (node.op->traits.constant) {
      MR_TRY_ASSIGN(Tensor value, node.attr<Tensor>("value"));
      return std::vector<Tensor>{std::move(value)};
    }
    std::vector<Tensor> inputs;
    for (Output input : node.inputs) {
      inputs.push_back(values_[index(input.node)][static_cast<size_t>(input.index)]);
    }
    return kernel_folder_.run(node, std::move(inputs));
  }

  // Consumers come first, so what stays because its result is too large keeps folded inputs.
  void give_up_if_large(NodeId id) {
    if (!folded(id) || graph_.node(id).op->traits.constant) return;
    for (const Subgraph::Use& use : uses_[index(id)]) {
      if (use.input < 0 || folded(use.node)) continue;
      const Tensor& tensor = values_[index(id)][static_cast<size_t>(use.output)];
      if (bytes_of(tensor) <= options_.max_constant_bytes) continue;
      values_[index(id)].clear();
      return;
    }
  }

  Result<bool> replace(const std::vector<NodeId>& order) {
    bool changed = false;
    for (NodeId id : order) {
      if (!folded(id)) continue;
      bool constant = graph_.node(id).op->traits.constant;
      std::vector<NodeId> replacement(values_[index(id)].size(), -1);
      for (const Subgraph::Use& use : uses_[index(id)]) {
        if (folded(use.node)) continue;
        if (use.input < 0) {
          // Waiting for a constant is waiting for nothing.
          changed |= std::erase(graph_.node(use.node).control_inputs, id) > 0;
        } else if (!constant) {
          NodeId& by = replacement[static_cast<size_t>(use.output)];
          if (by < 0) {
            MR_TRY_ASSIGN(by, add_constant(id, static_cast<size_t>(use.output)));
          }
          graph_.node(use.node).inputs[static_cast<size_t>(use.input)] = {by, 0};
          changed = true;
        }
      }
    }
    return changed;
  }

  Result<NodeId> add_constant(NodeId id, size_t output) {
    if (names_.empty()) {
      for (const SubNode& node : graph_.nodes()) names_.insert(node.name);
    }
    std::string name;
    do {
      name = str_cat(graph_.node(id).name, "__cf__", next_++);
    } while (!names_.insert(name).second);
    Tensor value = values_[index(id)][output];
    DType type = value.dtype();
    MR_TRY_ASSIGN(NodeId added, graph_.add(std::move(name), "Const", {}, {},
                                           {{"dtype", type}, {"value", std::move(value)}},
                                           graph_.node(id).device));
    graph_.node(added).origin = graph_.node(id).origin;
    return added;
  }

  Subgraph& graph_;
  const OptimizeOptions& options_;
  const KernelRegistry& kernels_;
  KernelFolder kernel_folder_;
  std::vector<std::vector<Tensor>> values_;  // by node; empty: not folded
  std::vector<std::vector<Subgraph::Use>> uses_;
  std::unordered_set<std::string> names_;
  int64_t held_ = 0;
  int64_t next_ = 0;
};

}  // namespace

Result<bool> fold_constants(Subgraph& graph, const OptimizeOptions& options) {
  if (options.cpu == nullptr) return false;
  return Folder(graph, options).run();
}

}  // namespace millrace
