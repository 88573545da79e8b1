#include "millrace/runtime/mixed_precision.h"

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "millrace/base/str_cat.h"
#include "millrace/runtime/node_device.h"
#include "millrace/runtime/optimize.h"

// Nodes of float32 become nodes of half or bfloat16 by four lists of ops:
//
// 1. Allowed ones do.
// 2. Denied ones do not, nor what lies on a path from a denied one to a denied or inferred one.
// 3. Of the others, those that lie between allowed ones do.
// 4. Of cleared ones, those do too whose operands all are in 16 bits, or whose readers all read
//    them so: a cast moves to where it has less to do, none is added, and no reader in float32 sees
//    a rounded value that it would not have seen.
//
// Where types then differ there is a Cast, one for all readers on a device. Variables, references,
// feeds, fetches and what a loop carries stay float32.

namespace millrace {
namespace {

size_t index(NodeId id) { return static_cast<size_t>(id); }

class Painter {
 public:
  Painter(Subgraph& graph, const OptimizeOptions& options)
      : graph_(graph),
        options_(options),
        kernels_(options.kernels != nullptr ? *options.kernels : KernelRegistry::global()) {}

  Result<bool> run() {
    MR_TRY(graph_.registry().lookup("Cast").status());
    MR_TRY(find_candidates());
    const std::vector<NodeId> allowed = all_in(PrecisionList::kAllow, /*candidates=*/true);
    if (allowed.empty()) return false;
    uses_ = graph_.uses();
    choose(allowed);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (!chosen_[index(id)]) continue;
      SubNode& node = graph_.node(id);
      Lowered& lowered = *lowered_[index(id)];
      node.attrs = std::make_shared<const AttrMap>(std::move(lowered.attrs));
      node.input_types = std::move(lowered.input_types);
      node.output_types = std::move(lowered.output_types);
    }
    MR_TRY(add_casts());
    return true;
  }

 private:
  // A node as it would be in 16 bits.
  struct Lowered {
    AttrMap attrs;
    std::vector<DType> input_types, output_types;
  };

  Status find_candidates() {
    const auto lists = precision_lists();
    list_.resize(index(graph_.size()));
    lowered_.resize(index(graph_.size()));
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const SubNode& node = graph_.node(id);
      const auto listed = lists.find(node.op->name);
      if (node.erased || node.op_owner || listed == lists.end()) continue;
      list_[index(id)] = listed->second;
      if (listed->second == PrecisionList::kDeny || !may_change(node)) continue;
      MR_TRY_ASSIGN(lowered_[index(id)], lower(node));
    }
    return ok_status();
  }

  bool may_change(const SubNode& node) const {
    if (node.op->traits.stateful || is_loop_control(node)) return false;
    for (DType type : node.input_types) {
      if (is_ref(type)) return false;
    }
    for (Output input : node.inputs) {
      if (is_ref(graph_.output_type(input))) return false;
    }
    for (DType type : node.output_types) {
      if (is_ref(type)) return false;
    }
    return true;
  }

  bool is_loop_control(const SubNode& node) const {
    const auto reads = [&](ControlFlow what) {
      for (Output input : node.inputs) {
        if (graph_.node(input.node).op->traits.control_flow == what) return true;
      }
      return false;
    };
    switch (node.op->traits.control_flow) {
      case ControlFlow::kNone:
        return false;
      case ControlFlow::kSwitch:
        return reads(ControlFlow::kLoopCond);
      case ControlFlow::kMerge:
        return reads(ControlFlow::kNextIteration);
      default:
        return true;
    }
  }

  // Nothing where the node has no float32 that could be less, or no kernel then.
  Result<std::optional<Lowered>> lower(const SubNode& node) const {
    const std::optional<DeviceKind> kind = device_kind(graph_, node);
    const DType type = kind == DeviceKind::kCpu    ? options_.cpu_precision
                       : kind == DeviceKind::kCuda ? options_.gpu_precision
                                                   : DType::kFloat;
    if (type == DType::kFloat) return std::nullopt;
    Lowered out;
    out.attrs = *node.attrs;
    bool changed = false;
    for (const AttrDef& attr : node.op->attrs) {
      const AttrValue* value = attr.type == "type" ? node.attrs->find(attr.name) : nullptr;
      if (value == nullptr || !(*value == AttrValue(DType::kFloat))) continue;
      if (!attr.allowed_types.empty() && !attr.allowed_types.contains(type)) continue;
      out.attrs.set(attr.name, type);
      changed = true;
    }
    if (!changed || !kernels_.any(node.op->name, *kind, out.attrs)) return std::nullopt;
    MR_TRY_ASSIGN(out.input_types, expand_types(node.op->inputs, out.attrs));
    MR_TRY_ASSIGN(out.output_types, expand_types(node.op->outputs, out.attrs));
    return std::optional(std::move(out));
  }

  std::vector<NodeId> all_in(PrecisionList list, bool candidates = false) const {
    std::vector<NodeId> out;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (list_[index(id)] == list && (!candidates || lowered_[index(id)])) out.push_back(id);
    }
    return out;
  }

  bool input_counts(NodeId id, size_t input) const {
    if (graph_.node(id).input_types[input] != DType::kFloat) return false;
    const std::optional<Lowered>& lowered = lowered_[index(id)];
    return !lowered || lowered->input_types[input] != DType::kFloat;
  }
  bool output_counts(Output o) const {
    if (graph_.output_type(o) != DType::kFloat) return false;
    const std::optional<Lowered>& lowered = lowered_[index(o.node)];
    return !lowered || lowered->output_types[static_cast<size_t>(o.index)] != DType::kFloat;
  }
  // Calls f(node) for those that this one reads (that read this one) in float32, where that may
  // change on either side.
  template <class F>
  void for_each_read(NodeId id, F f) const {
    const SubNode& node = graph_.node(id);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (input_counts(id, i) && output_counts(node.inputs[i])) f(node.inputs[i].node);
    }
  }
  template <class F>
  void for_each_reader(NodeId id, F f) const {
    for (const Subgraph::Use& use : uses_[index(id)]) {
      if (use.input < 0 || !output_counts({id, use.output})) continue;
      if (input_counts(use.node, static_cast<size_t>(use.input))) f(use.node);
    }
  }

  // What is reached from `roots`, themselves included, through nodes that `through` takes.
  template <class Through>
  std::vector<bool> reached(std::vector<NodeId> roots, bool forward, Through through) const {
    std::vector<bool> seen(index(graph_.size()), false);
    for (NodeId id : roots) seen[index(id)] = true;
    const auto visit = [&](NodeId id) {
      if (seen[index(id)] || !through(id)) return;
      seen[index(id)] = true;
      roots.push_back(id);
    };
    while (!roots.empty()) {
      const NodeId id = roots.back();
      roots.pop_back();
      if (forward) {
        for_each_reader(id, visit);
      } else {
        for_each_read(id, visit);
      }
    }
    return seen;
  }

  void choose(const std::vector<NodeId>& allowed) {
    const auto is = [&](NodeId id, PrecisionList list) { return list_[index(id)] == list; };
    const std::vector<NodeId> denied = all_in(PrecisionList::kDeny);
    std::vector<NodeId> ends = all_in(PrecisionList::kInfer);
    ends.insert(ends.end(), denied.begin(), denied.end());
    const std::vector<bool> to_ends =
        reached(ends, false, [&](NodeId id) { return is(id, PrecisionList::kClear); });
    denied_ = reached(denied, true, [&](NodeId id) { return to_ends[index(id)]; });
    const std::vector<bool> behind = reached(allowed, true, [&](NodeId id) {
      return lowered_[index(id)] && !denied_[index(id)] && !is(id, PrecisionList::kAllow);
    });
    chosen_ = reached(allowed, false, [&](NodeId id) { return behind[index(id)]; });
    choose_cleared();
  }

  void choose_cleared() {
    std::vector<NodeId> next;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (chosen_[index(id)]) next.push_back(id);
    }
    const auto visit = [&](NodeId id) {
      if (chosen_[index(id)] || list_[index(id)] != PrecisionList::kClear || denied_[index(id)] ||
          !lowered_[index(id)] || (!reads_chosen_only(id) && !is_read_by_chosen_only(id))) {
        return;
      }
      chosen_[index(id)] = true;
      next.push_back(id);
    };
    while (!next.empty()) {
      const NodeId id = next.back();
      next.pop_back();
      for_each_read(id, visit);
      for_each_reader(id, visit);
    }
  }

  bool reads_chosen_only(NodeId id) const {
    const SubNode& node = graph_.node(id);
    bool any = false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!input_counts(id, i)) continue;
      any = chosen_[index(node.inputs[i].node)] && output_counts(node.inputs[i]);
      if (!any) return false;
    }
    return any;
  }
  bool is_read_by_chosen_only(NodeId id) const {
    bool any = false;
    for (const Subgraph::Use& use : uses_[index(id)]) {
      if (use.input < 0 || !output_counts({id, use.output})) continue;
      any = chosen_[index(use.node)] && input_counts(use.node, static_cast<size_t>(use.input));
      if (!any) return false;
    }
    return any;
  }

  Status add_casts() {
    std::map<std::tuple<NodeId, int, DType, DeviceId>, Output> casts;
    const NodeId size = graph_.size();
    for (NodeId id = 0; id < size; ++id) {
      if (graph_.node(id).erased) continue;
      for (size_t i = 0; i < graph_.node(id).inputs.size(); ++i) {
        const Output from = graph_.node(id).inputs[i];
        const DType has = graph_.output_type(from), wants = graph_.node(id).input_types[i];
        if (base_type(has) == base_type(wants)) continue;
        const DeviceId device = graph_.node(id).device;
        const auto [at, fresh] = casts.try_emplace({from.node, from.index, wants, device}, from);
        if (fresh) {
          std::string name = graph_.unique_name(
              str_cat(graph_.node(from.node).name, "/to_", dtype_name(wants), "_"));
          MR_TRY_ASSIGN(const NodeId cast, graph_.add(std::move(name), "Cast", {from}, {},
                                                      {{"SrcT", has}, {"DstT", wants}}, device));
          graph_.node(cast).origin = graph_.node(from.node).origin;
          at->second = {cast, 0};
        }
        graph_.node(id).inputs[i] = at->second;
      }
    }
    return ok_status();
  }

  Subgraph& graph_;
  const OptimizeOptions& options_;
  const KernelRegistry& kernels_;
  // By node:
  std::vector<std::optional<PrecisionList>> list_;
  std::vector<std::optional<Lowered>> lowered_;
  std::vector<std::vector<Subgraph::Use>> uses_;
  std::vector<bool> denied_, chosen_;
};

}  // namespace

Result<bool> lower_precision(Subgraph& graph, const OptimizeOptions& options) {
  if (options.cpu_precision == DType::kFloat && options.gpu_precision == DType::kFloat) {
    return false;
  }
  return Painter(graph, options).run();
}

}  // namespace millrace
