#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "millrace/graph/elementwise_tree.h"
#include "millrace/kernel/registry.h"
#include "millrace/runtime/node_device.h"
#include "millrace/runtime/optimize.h"
#include "millrace/runtime/presence.h"

// Puts one node in place of elementwise ops that read each other (OpTraits::fused_by), and of ops
// among them that fold the last dimensions of what they read (OpTraits::folds): means and sums of
// rows, in the middle of a normalisation, say. Folds along other dimensions stay on their own.
//
// Nodes are visited in an order that puts elementwise ones as early as they can run. Each joins the
// groups of those it reads, as far as these are open. A group is closed as soon as a node that
// reads one of its members does not join. So all that reads a group comes after its last member,
// all that it reads comes before, and one node in the place of the last member closes no cycle.

namespace millrace {
namespace {

size_t index(NodeId id) { return static_cast<size_t>(id); }

// The list of dimensions that a fold reads.
constexpr size_t kAxes = 1;
constexpr std::string_view kKeepDims = "keep_dims";

struct Group {
  std::vector<NodeId> members;  // in the order visited
  std::string_view op;          // that fuses them
  DeviceId device = 0;
  int present = 0;  // when its values are
  int read = 0;     // edges from members to others
  bool open = true;
  NodeId closed_by = -1;
};

class Fuser {
 public:
  Fuser(Subgraph& graph, const OptimizeOptions& options)
      : graph_(graph),
        kernels_(options.kernels != nullptr ? *options.kernels : KernelRegistry::global()) {}

  Result<bool> run() {
    fusable_.resize(index(graph_.size()));
    fused_by_.resize(index(graph_.size()));
    bool any = false;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const SubNode& node = graph_.node(id);
      fused_by_[index(id)] = node.op->traits.fused_by;
      fusable_[index(id)] = !fused_by_[index(id)].empty() && may_fuse(node);
    }
    MR_TRY(find_folds());
    for (const SubNode& node : graph_.nodes()) any |= joins_something(node);
    moved_.assign(index(graph_.size()), Output{-1, 0});
    if (!any) {
      write_notes();
      return false;
    }
    uses_ = graph_.uses();
    leave_what_forwards();
    MR_TRY_ASSIGN(const std::vector<NodeId> order, find_order());
    present_.emplace(graph_, order);
    group_.assign(index(graph_.size()), -1);
    for (NodeId id : order) visit(id);
    return replace();
  }

 private:
  // A node that touches no elements costs nothing on its own; it is fused where nobody else reads
  // it and, if it gives another shape, where that is the shape of a fold.
  void leave_what_forwards() {
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (!fusable_[index(id)] || !graph_.node(id).op->traits.forwards) continue;
      const auto fuses = [&](const Subgraph::Use& use) {
        return use.input >= 0 && fusable_[index(use.node)];
      };
      const std::vector<Output>& inputs = graph_.node(id).inputs;
      const NodeId from = inputs[0].node;
      const bool of_fold = fusable_[index(from)] && graph_.node(from).op->traits.folds;
      fusable_[index(id)] = (inputs.size() == 1 || of_fold) &&
                            std::all_of(uses_[index(id)].begin(), uses_[index(id)].end(), fuses);
    }
  }

  // Folds are fused by what fuses those they read, or else those that read them.
  Status find_folds() {
    std::vector<NodeId> folds;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const SubNode& node = graph_.node(id);
      if (!node.erased && node.op->traits.folds && fused_by_[index(id)].empty() &&
          node.inputs.size() == kAxes + 1) {
        folds.push_back(id);
      }
    }
    if (folds.empty()) return ok_status();
    for (const SubNode& node : graph_.nodes()) {
      if (!fusable_[index(id_of(node))]) continue;
      for (Output input : node.inputs) {
        if (graph_.node(input.node).op->traits.folds) {
          fused_by_[index(input.node)] = node.op->traits.fused_by;
        }
      }
    }
    for (NodeId id : folds) {
      const SubNode& node = graph_.node(id);
      const NodeId from = node.inputs[0].node;
      if (fusable_[index(from)]) fused_by_[index(id)] = fused_by_[index(from)];
      if (fused_by_[index(id)].empty() || !may_fuse(node)) continue;
      MR_TRY_ASSIGN(fusable_[index(id)], folds_last_dimensions(node));
      if (!fusable_[index(id)])
        notes_[id] = "not fused: it may fold other dimensions than the last";
    }
    return ok_status();
  }

  // Whether a node folds along the last dimensions, by all that is declared: where that is wrong,
  // the fold is computed all the same, but gains nothing.
  Result<bool> folds_last_dimensions(const SubNode& node) {
    MR_TRY_ASSIGN(const SubgraphFacts* facts, graph_.facts());
    const std::optional<PartialValue>& axes = facts->of(node.inputs[kAxes]).value;
    if (!axes || !axes->fully_known() || axes->elements.empty()) return false;
    const auto from_start = [](const std::optional<int64_t>& axis) { return *axis >= 0; };
    int rank = -1;
    if (std::any_of(axes->elements.begin(), axes->elements.end(), from_start)) {
      rank = facts->of(node.inputs[0]).shape.rank();
      if (rank < 0) {
        MR_TRY_ASSIGN(const SubgraphFacts* declared, find_declared());
        rank = declared->of(node.inputs[0]).shape.rank();
      }
      if (rank < 0) return false;
    }
    std::vector<int64_t> from_end;
    for (const std::optional<int64_t>& axis : axes->elements) {
      from_end.push_back(*axis < 0 ? -*axis : rank - *axis);
    }
    std::sort(from_end.begin(), from_end.end());
    for (size_t i = 0; i < from_end.size(); ++i) {
      if (from_end[i] != static_cast<int64_t>(i) + 1) return false;
    }
    return true;
  }

  // What holds when variables have the shapes that they declare.
  Result<const SubgraphFacts*> find_declared() {
    if (!declared_) {
      declared_.emplace(/*declared=*/true);
      MR_TRY(declared_->update(graph_));
    }
    return &*declared_;
  }

  // What can be said of a node by itself.
  bool may_fuse(const SubNode& node) {
    const OpTraits& t = node.op->traits;
    if (node.erased || t.stateful || node.output_types.size() != 1 || node.op_owner ||
        node.inputs.empty() || is_ref(node.output_types[0])) {
      return false;
    }
    for (Output input : node.inputs) {
      if (is_ref(graph_.output_type(input))) return false;
    }
    return has_plain_attributes(node) && has_kernel(node);
  }

  // Types and defaults alone: nothing else is said in a tree.
  static bool has_plain_attributes(const SubNode& node) {
    for (const AttrDef& def : node.op->attrs) {
      if (def.type == "type" || (node.op->traits.folds && def.name == kKeepDims)) continue;
      const auto counts = [&](const ArgDef& arg) { return arg.number_attr == def.name; };
      if (std::any_of(node.op->inputs.begin(), node.op->inputs.end(), counts)) continue;
      const AttrValue* value = node.attrs->find(def.name);
      if (value == nullptr || !(*value == def.default_value)) return false;
    }
    return true;
  }

  // Without its operands.
  static ElementwiseTree::Stage stage_of(const SubNode& node) {
    const Result<bool> keep = node.op->traits.folds ? node.attr<bool>(kKeepDims) : false;
    return {node.op->name, node.output_types[0], {}, keep.ok() && *keep};
  }

  // Whether the op that fuses can compute a tree of this node alone.
  bool has_kernel(const SubNode& node) {
    const OpDef* fusing = graph_.registry().find(fused_by_[index(id_of(node))]);
    const Result<DeviceName>& device = graph_.devices().parsed(node.device);
    if (fusing == nullptr || !device.ok()) return false;
    // Nodes without a device, as in functions, are the CPU's.
    const DeviceKind kind =
        device->type ? device_kind(graph_, node).value_or(DeviceKind::kNull) : DeviceKind::kCpu;
    if (kind != DeviceKind::kCpu && kind != DeviceKind::kCuda) return false;
    std::vector<DType> types = node.input_types;
    types.push_back(node.output_types[0]);
    auto [at, fresh] = computed_.try_emplace({node.op, fusing, kind, std::move(types)}, false);
    if (!fresh) return at->second;
    KernelNode one;
    one.name = node.name;
    one.op = fusing;
    one.attrs = {{"Tin", node.input_types}, {"Tout", node.output_types}};
    ElementwiseTree tree;
    ElementwiseTree::Stage stage = stage_of(node);
    for (size_t i = 0; i < node.inputs.size(); ++i) stage.operands.push_back(static_cast<int>(i));
    tree.stages.push_back(std::move(stage));
    tree.results = {0};
    tree.write(one.attrs);
    one.input_types = node.input_types;
    one.output_types = node.output_types;
    at->second = make_kernel(kernels_, one, kind).ok();
    return at->second;
  }

  bool joins_something(const SubNode& node) const {
    if (!fusable_[index(id_of(node))]) return false;
    return std::any_of(node.inputs.begin(), node.inputs.end(),
                       [&](Output input) { return fusable_[index(input.node)]; });
  }

  NodeId id_of(const SubNode& node) const {
    return static_cast<NodeId>(&node - graph_.nodes().data());
  }

  // A topological order in which nodes that may fuse come as soon as they can, and others in the
  // order in which they can: so those that read no fused node do not wait for those that do.
  Result<std::vector<NodeId>> find_order() const {
    MR_TRY_ASSIGN(const std::vector<NodeId> any, graph_.topological_order());
    std::vector<int> missing(index(graph_.size()), 0);
    for (NodeId id : any) {
      const SubNode& node = graph_.node(id);
      missing[index(id)] = static_cast<int>(node.control_inputs.size());
      for (Output input : node.inputs) {
        missing[index(id)] += !is_back_edge(graph_.node(input.node), node);
      }
    }
    std::vector<NodeId> eager, others, order;  // `others` from `next` on
    for (NodeId id : any) {
      if (missing[index(id)] == 0) others.push_back(id);
    }
    for (size_t next = 0; !eager.empty() || next < others.size();) {
      const NodeId id = eager.empty() ? others[next++] : eager.back();
      if (!eager.empty()) eager.pop_back();
      order.push_back(id);
      for (const Subgraph::Use& use : uses_[index(id)]) {
        if (use.input >= 0 && is_back_edge(graph_.node(id), graph_.node(use.node))) continue;
        if (--missing[index(use.node)] > 0) continue;
        (fusable_[index(use.node)] ? eager : others).push_back(use.node);
      }
    }
    return order;
  }

  // The edges from members of `group` to `node`.
  int edges(const Group& group, const SubNode& node) const {
    const auto is_member = [&](NodeId id) {
      return group_[index(id)] >= 0 && &groups_[static_cast<size_t>(group_[index(id)])] == &group;
    };
    int count = 0;
    for (Output input : node.inputs) count += is_member(input.node);
    for (NodeId c : node.control_inputs) count += is_member(c);
    return count;
  }

  // Why `id` may not join; empty when it may.
  std::string refusal(NodeId id, const Group& group) const {
    const SubNode& node = graph_.node(id);
    if (!group.open) {
      const std::string& by = graph_.node(group.closed_by).name;
      return is_target(group.closed_by) && group.members.back() == group.closed_by
                 ? str_cat(by, " is a target")
                 : str_cat("it is read by ", by, " before");
    }
    if (fused_by_[index(id)] != group.op) return "another op fuses it";
    if (node.device != group.device) return "it is on another device";
    // What others read of the group must not be dead, or late, when only this node is.
    if (present_->of(id) != group.present && group.read != edges(group, node)) {
      return "others read it, and it may be there when this is not";
    }
    std::vector<NodeId> members = group.members;
    const Group& own = groups_[static_cast<size_t>(group_[index(id)])];
    members.insert(members.end(), own.members.begin(), own.members.end());
    if (members.size() > ElementwiseTree::kMaxStages ||
        inputs_of(members) > ElementwiseTree::kMaxInputs) {
      return "there would be too many ops or inputs";
    }
    return {};
  }

  // How many inputs a node of all of them would have.
  int inputs_of(std::span<const NodeId> members) const {
    std::vector<Output> inputs;
    for (NodeId id : members) {
      for (Output input : graph_.node(id).inputs) {
        if (std::find(members.begin(), members.end(), input.node) == members.end())
          inputs.push_back(input);
      }
    }
    std::sort(inputs.begin(), inputs.end(), [](Output a, Output b) {
      return a.node != b.node ? a.node < b.node : a.index < b.index;
    });
    return static_cast<int>(std::unique(inputs.begin(), inputs.end()) - inputs.begin());
  }

  void visit(NodeId id) {
    const SubNode& node = graph_.node(id);
    if (fusable_[index(id)]) {
      group_[index(id)] = static_cast<int>(groups_.size());
      groups_.push_back({{id},
                         fused_by_[index(id)],
                         node.device,
                         present_->of(id),
                         static_cast<int>(uses_[index(id)].size())});
      for (Output input : node.inputs) {
        if (group_[index(input.node)] >= 0 && group_[index(input.node)] != group_[index(id)]) {
          join(id, input.node);
        }
      }
    }
    for (Output input : node.inputs) close(input.node, id);
    for (NodeId c : node.control_inputs) close(c, id);
    // A target keeps its name: it is the last of its group.
    if (fusable_[index(id)] && is_target(id)) {
      groups_[static_cast<size_t>(group_[index(id)])].open = false;
      groups_[static_cast<size_t>(group_[index(id)])].closed_by = id;
    }
  }

  bool is_target(NodeId id) const { return graph_.node(id).attrs->find(kTargetAttr) != nullptr; }

  // Joins the groups of a node just visited and of one that it reads, where that may be.
  void join(NodeId id, NodeId from) {
    Group& group = groups_[static_cast<size_t>(group_[index(from)])];
    Group& into = groups_[static_cast<size_t>(group_[index(id)])];
    if (std::string reason = refusal(id, group); !reason.empty()) {
      notes_[id] = str_cat("not with ", graph_.node(from).name, ": ", reason);
      return;
    }
    into.read += group.read - edges(group, graph_.node(id));
    for (NodeId member : group.members) group_[index(member)] = group_[index(id)];
    group.members.insert(group.members.end(), into.members.begin(), into.members.end());
    into.members = std::move(group.members);
    group.members.clear();
  }

  void close(NodeId from, NodeId id) {
    const int g = group_[index(from)];
    if (g < 0 || g == group_[index(id)] || !groups_[static_cast<size_t>(g)].open) return;
    groups_[static_cast<size_t>(g)].open = false;
    groups_[static_cast<size_t>(g)].closed_by = id;
  }

  Result<bool> replace() {
    bool changed = false;
    for (Group& group : groups_) {
      if (group.members.size() < 2) continue;
      MR_TRY(fuse(group));
      changed = true;
    }
    write_notes();
    if (!changed) return false;
    for (SubNode& node : graph_.nodes()) {
      if (node.erased) continue;
      for (Output& input : node.inputs) {
        if (moved_[index(input.node)].node >= 0) input = moved_[index(input.node)];
      }
      for (NodeId& c : node.control_inputs) {
        if (moved_[index(c)].node >= 0) c = moved_[index(c)].node;
      }
    }
    graph_.compact();
    return true;
  }

  void write_notes() {
    for (const auto& [id, note] : notes_) {
      const NodeId now = moved_[index(id)].node;
      graph_.node(now >= 0 ? now : id).set_attr(kNotFusedAttr, note);
    }
  }

  // One node in the place of the last member, under its name.
  Status fuse(const Group& group) {
    const NodeId last = group.members.back();
    ElementwiseTree tree;
    std::vector<Output> inputs;
    std::vector<DType> types, result_types;
    std::vector<NodeId> controls;
    std::vector<std::string> names, lines;
    const auto place_of = [&](NodeId id) {
      return std::find(group.members.begin(), group.members.end(), id) - group.members.begin();
    };
    const auto is_member = [&](NodeId id) { return group_[index(id)] == group_[index(last)]; };
    for (NodeId id : group.members) {
      const SubNode& node = graph_.node(id);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const Output input = node.inputs[i];
        if (is_member(input.node) || std::find(inputs.begin(), inputs.end(), input) != inputs.end())
          continue;
        inputs.push_back(input);
        types.push_back(node.input_types[i]);
      }
    }
    for (NodeId id : group.members) {
      const SubNode& node = graph_.node(id);
      ElementwiseTree::Stage stage = stage_of(node);
      for (Output input : node.inputs) {
        const auto at = is_member(input.node)
                            ? static_cast<std::ptrdiff_t>(inputs.size()) + place_of(input.node)
                            : std::find(inputs.begin(), inputs.end(), input) - inputs.begin();
        stage.operands.push_back(static_cast<int>(at));
      }
      for (NodeId c : node.control_inputs) {
        if (!is_member(c)) controls.push_back(c);
      }
      moved_[index(id)] = {last, static_cast<int>(tree.results.size())};
      const auto reads = [&](const Subgraph::Use& use) {
        return use.input >= 0 && !is_member(use.node);
      };
      if (std::any_of(uses_[index(id)].begin(), uses_[index(id)].end(), reads) ||
          (id == last && tree.results.empty())) {
        tree.results.push_back(static_cast<int>(tree.stages.size()));
        result_types.push_back(node.output_types[0]);
      }
      names.push_back(node.name);
      lines.push_back(describe_origin(node.origin));
      tree.stages.push_back(std::move(stage));
    }
    std::sort(controls.begin(), controls.end());
    controls.erase(std::unique(controls.begin(), controls.end()), controls.end());

    AttrMap attrs = {{"Tin", types}, {"Tout", result_types}};
    tree.write(attrs);
    attrs.set(kStandsForAttr, std::move(names));
    attrs.set(kStandsForLinesAttr, std::move(lines));
    SubNode fused = graph_.node(last);
    const AttrValue* target = fused.attrs->find(kTargetAttr);
    if (target != nullptr) attrs.set(kTargetAttr, *target);
    MR_TRY_ASSIGN(fused.op, graph_.registry().lookup(group.op));
    MR_TRY(check_attrs(*fused.op, attrs));
    fused.attrs = std::make_shared<const AttrMap>(std::move(attrs));
    fused.inputs = std::move(inputs);
    fused.control_inputs = std::move(controls);
    fused.input_types = std::move(types);
    fused.output_types = std::move(result_types);
    for (NodeId id : group.members) graph_.node(id).erased = id != last;
    graph_.node(last) = std::move(fused);
    return ok_status();
  }

  Subgraph& graph_;
  const KernelRegistry& kernels_;
  std::vector<bool> fusable_;  // by node
  std::vector<std::string_view> fused_by_;
  std::map<std::tuple<const OpDef*, const OpDef*, DeviceKind, std::vector<DType>>, bool> computed_;
  std::vector<std::vector<Subgraph::Use>> uses_;
  std::optional<Presence> present_;
  std::optional<SubgraphFacts> declared_;
  std::vector<Group> groups_;
  std::vector<int> group_;     // by node: -1 none
  std::vector<Output> moved_;  // by node: where its value is now
  std::map<NodeId, std::string> notes_;
};

}  // namespace

Result<bool> fuse_elementwise(Subgraph& graph, const OptimizeOptions& options) {
  return Fuser(graph, options).run();
}

}  // namespace millrace
