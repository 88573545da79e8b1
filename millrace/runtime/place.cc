#include "millrace/runtime/place.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "millrace/base/log.h"

namespace millrace {
namespace {

constexpr std::string_view kColocationAttr = "_class";
constexpr std::string_view kColocationPrefix = "loc:@";

size_t index(NodeId id) { return static_cast<size_t>(id); }

std::string describe(const SubNode& node) { return str_cat(node.op->name, " \"", node.name, "\""); }

bool has_state(const SubNode& node) {
  const OpTraits& t = node.op->traits;
  return (t.stateful || t.owns_state) && !t.argument && !t.result && !t.send && !t.recv;
}

// No inputs and one output that may be copied: as well made where it is used.
bool is_source(const SubNode& node) {
  return node.inputs.empty() && node.output_types.size() == 1 && !is_ref(node.output_types[0]);
}

// Nodes that must be on one device.
struct Group {
  DeviceName wish;                             // of all members together
  std::string wished_by;                       // a member that asked, for messages
  std::vector<NodeId> members;                 // filled in once groups are final
  Status error;                                // why it cannot be placed
  std::optional<std::vector<int>> candidates;  // devices it may use, best first
  int device = -1;                             // chosen
};

class Placer {
 public:
  Placer(Subgraph& graph, const DeviceSet& devices, const PlaceOptions& options)
      : graph_(graph),
        devices_(devices),
        options_(options),
        kernels_(options.kernels != nullptr ? *options.kernels : KernelRegistry::global()) {
    for (const Device::Info& info : devices_.devices()) {
      if (std::find(kinds_.begin(), kinds_.end(), info.kind) == kinds_.end()) {
        kinds_.push_back(info.kind);
      }
    }
  }

  Status place_all() {
    make_groups();
    MR_TRY_ASSIGN(std::vector<NodeId> order, graph_.topological_order());
    std::vector<NodeId> sources;
    for (NodeId id : order) {
      if (is_source(graph_.node(id)) && !group(id).wish.complete()) {
        sources.push_back(id);
      } else {
        MR_TRY(choose(id));
      }
    }
    if (!sources.empty()) uses_ = graph_.uses();
    for (NodeId id : sources) MR_TRY(choose(id));
    for (NodeId id : order) assign(id);
    return ok_status();
  }

  void pin_from(NodeId first) {
    bool any = false;
    for (NodeId id = first; id < graph_.size() && !any; ++id) {
      any = !graph_.node(id).erased && has_state(graph_.node(id));
    }
    if (!any) return;
    make_groups();
    for (NodeId id = first; id < graph_.size(); ++id) {
      if (graph_.node(id).erased || !has_state(graph_.node(id))) continue;
      if (!choose(id).ok()) continue;
      for (NodeId member : group(id).members) assign(member);
    }
  }

 private:
  Group& group(NodeId id) { return groups_[index(root(id))]; }

  NodeId root(NodeId id) {
    while (parent_[index(id)] != id) {
      parent_[index(id)] = parent_[index(parent_[index(id)])];
      id = parent_[index(id)];
    }
    return id;
  }

  void make_groups() {
    parent_.resize(index(graph_.size()));
    groups_.resize(parent_.size());
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const SubNode& node = graph_.node(id);
      parent_[index(id)] = id;
      if (node.erased) continue;
      Result<DeviceName> wish = DeviceName::parse(node.device);
      if (!wish.ok()) {
        groups_[index(id)].error = wish.status().with_prefix(describe(node));
      } else if (!wish->empty()) {
        groups_[index(id)].wish = std::move(wish).value();
        groups_[index(id)].wished_by = node.name;
      }
    }
    join_classes();
    join_references();
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (!graph_.node(id).erased) group(id).members.push_back(id);
    }
  }

  void join_classes() {
    std::unordered_map<std::string_view, NodeId> by_name;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (!graph_.node(id).erased) by_name.emplace(graph_.node(id).name, id);
    }
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const SubNode& node = graph_.node(id);
      if (node.erased || node.attrs->find(kColocationAttr) == nullptr) continue;
      auto classes = node.attr<std::vector<std::string>>(kColocationAttr);
      if (!classes.ok()) {
        fail(id, classes.status().with_prefix(describe(node)));
        continue;
      }
      for (const std::string& entry : *classes) {
        if (!entry.starts_with(kColocationPrefix)) continue;
        auto other = by_name.find(std::string_view(entry).substr(kColocationPrefix.size()));
        if (other == by_name.end()) {
          fail(id, invalid_argument(describe(node), " must be with \"",
                                    entry.substr(kColocationPrefix.size()),
                                    "\", which is not in the graph"));
        } else {
          join(other->second, id);
        }
      }
    }
  }

  // The holder of a variable or resource and those who use it.
  void join_references() {
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const SubNode& node = graph_.node(id);
      if (node.erased || node.op->traits.result) continue;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        Output from = node.inputs[i];
        if (!is_ref(node.input_types[i]) && graph_.output_type(from) != DType::kResource) continue;
        Group& source = group(from.node);
        Group& target = group(id);
        if (!source.wish.empty() && !target.wish.empty() && &source != &target &&
            !source.wish.compatible(target.wish)) {
          MR_LOG(kWarning, describe(node), " asks for ", target.wish.to_string(),
                 " but must be with \"", graph_.node(from.node).name, "\" on ",
                 source.wish.to_string());
          target.wish = source.wish;
          target.wished_by = source.wished_by;
        }
        join(from.node, id);
      }
    }
  }

  void fail(NodeId id, Status error) {
    Group& g = group(id);
    if (g.error.ok()) g.error = std::move(error);
  }

  void join(NodeId a, NodeId b) {
    NodeId to = root(a), from = root(b);
    if (to == from) return;
    if (to > from) std::swap(to, from);
    Group& kept = groups_[index(to)];
    Group& gone = groups_[index(from)];
    parent_[index(from)] = to;
    if (kept.error.ok()) kept.error = std::move(gone.error);
    if (Status merged = kept.wish.merge(gone.wish, options_.soft); !merged.ok()) {
      fail(to, invalid_argument(describe(graph_.node(a)), " and ", describe(graph_.node(b)),
                                " must be on one device, but \"", kept.wished_by, "\" asks for ",
                                kept.wish.to_string(), " and \"", gone.wished_by, "\" for ",
                                gone.wish.to_string()));
    }
    if (kept.wished_by.empty()) kept.wished_by = std::move(gone.wished_by);
  }

  bool supported(const Group& g, DeviceKind kind) const {
    return std::all_of(g.members.begin(), g.members.end(), [&](NodeId id) {
      const SubNode& node = graph_.node(id);
      return kernels_.any(node.op->name, kind, *node.attrs);
    });
  }

  std::vector<int> matching(const DeviceName& wish, const std::vector<DeviceKind>& kinds) const {
    std::vector<int> out;
    for (size_t i = 0; i < devices_.devices().size(); ++i) {
      const Device::Info& info = devices_.devices()[i];
      if (info.name.matches(wish) &&
          std::find(kinds.begin(), kinds.end(), info.kind) != kinds.end())
        out.push_back(static_cast<int>(i));
    }
    return out;
  }

  Status find_candidates(Group& g) {
    if (g.candidates) return g.error;
    g.candidates.emplace();
    MR_TRY(g.error);
    std::vector<DeviceKind> kinds;
    for (DeviceKind kind : kinds_) {
      if (supported(g, kind)) kinds.push_back(kind);
    }
    g.candidates = matching(g.wish, kinds);
    if (g.candidates->empty() && options_.soft && !g.wish.empty()) {
      DeviceName task = g.wish;
      task.type.reset();
      task.id.reset();
      g.candidates = matching(task, kinds);
    }
    if (g.candidates->empty()) g.error = explain(g, kinds);
    return g.error;
  }

  // Why a group has no device.
  Status explain(const Group& g, const std::vector<DeviceKind>& kinds) const {
    const SubNode& node = graph_.node(g.members[0]);
    std::string what = describe(node);
    if (g.members.size() > 1) {
      std::vector<std::string> names;
      for (size_t i = 1; i < g.members.size() && i < 5; ++i) {
        names.push_back(describe(graph_.node(g.members[i])));
      }
      append_to(what, str_cat(" with ", str_join(names, ", "), g.members.size() > 5 ? ", ..." : "",
                              ", which must be with it,"));
    }
    if (kinds.empty()) {
      for (NodeId id : g.members) {
        const SubNode& member = graph_.node(id);
        bool any = std::any_of(kinds_.begin(), kinds_.end(), [&](DeviceKind kind) {
          return kernels_.any(member.op->name, kind, *member.attrs);
        });
        if (any) continue;
        return invalid_argument("cannot place ", describe(member), ": no kernel of ",
                                member.op->name, " for its types on any of the devices ",
                                devices_.to_string());
      }
      return invalid_argument("cannot place ", what,
                              ": no kind of device has kernels for all of them; the devices are ",
                              devices_.to_string());
    }
    std::string_view reason = matching(g.wish, kinds_).empty()
                                  ? "which does not exist"
                                  : "which has no kernel for it and its types";
    return invalid_argument("cannot place ", what, ": \"", g.wished_by, "\" asks for ",
                            g.wish.to_string(), ", ", reason, "; the devices are ",
                            devices_.to_string());
  }

  Status choose(NodeId id) {
    Group& g = group(id);
    if (g.device >= 0) return ok_status();
    MR_TRY(find_candidates(g));
    int near = near_device(id, g);
    g.device = near >= 0 ? near : g.candidates->front();
    return ok_status();
  }

  bool may_use(const Group& g, int device) const {
    return device >= 0 &&
           std::find(g.candidates->begin(), g.candidates->end(), device) != g.candidates->end();
  }

  // Where tensors need not be moved; -1: no preference.
  int near_device(NodeId id, Group& g) {
    const SubNode& node = graph_.node(id);
    if (is_source(node)) {
      int at = common_consumer_device(id);
      return may_use(g, at) ? at : -1;
    }
    if (node.op->traits.metadata_only && !node.inputs.empty()) {
      int at = device_of(node.inputs[0].node);
      if (may_use(g, at)) return at;
    }
    return g.wish.empty() ? most_inputs_device(g) : -1;
  }

  // Where a node is or, when its wish leaves no choice, will be; -1: not known yet.
  int device_of(NodeId id) {
    Group& g = group(id);
    if (g.device >= 0 || g.wish.empty()) return g.device;
    return find_candidates(g).ok() && g.candidates->size() == 1 ? g.candidates->front() : -1;
  }

  int common_consumer_device(NodeId id) {
    int at = -1;
    if (uses_.empty()) return at;
    for (const Subgraph::Use& use : uses_[index(id)]) {
      if (use.input < 0) continue;
      int device = group(use.node).device;
      if (device < 0 || (at >= 0 && at != device)) return -1;
      at = device;
    }
    return at;
  }

  // Among the devices of the best kind. Feeds come from the client and say nothing.
  int most_inputs_device(const Group& g) {
    std::vector<int> votes(devices_.devices().size(), 0);
    for (NodeId id : g.members) {
      for (Output input : graph_.node(id).inputs) {
        if (graph_.node(input.node).op->traits.argument) continue;
        if (int at = device_of(input.node); at >= 0) ++votes[static_cast<size_t>(at)];
      }
    }
    int best = -1;
    DeviceKind kind = devices_.devices()[static_cast<size_t>(g.candidates->front())].kind;
    for (int device : *g.candidates) {
      size_t d = static_cast<size_t>(device);
      if (devices_.devices()[d].kind != kind || votes[d] == 0) continue;
      if (best < 0 || votes[d] > votes[static_cast<size_t>(best)]) best = device;
    }
    return best;
  }

  void assign(NodeId id) {
    SubNode& node = graph_.node(id);
    node.device = devices_.full_name(group(id).device);
    if (options_.log) MR_LOG(kInfo, describe(node), " on ", node.device);
  }

  Subgraph& graph_;
  const DeviceSet& devices_;
  const PlaceOptions& options_;
  const KernelRegistry& kernels_;
  std::vector<DeviceKind> kinds_;  // that there are
  std::vector<NodeId> parent_;     // union-find
  std::vector<Group> groups_;      // by root
  std::vector<std::vector<Subgraph::Use>> uses_;
};

}  // namespace

Status place(Subgraph& graph, const DeviceSet& devices, const PlaceOptions& options) {
  return Placer(graph, devices, options).place_all();
}

Status pin_stateful(Subgraph& graph, NodeId first, const DeviceSet& devices,
                    const PlaceOptions& options) {
  Placer(graph, devices, options).pin_from(first);
  return ok_status();
}

void place_control_flow(Subgraph& graph) {
  Result<std::vector<NodeId>> order = graph.topological_order();
  if (!order.ok()) return;  // compiling says what is wrong
  std::vector<std::vector<Subgraph::Use>> uses = graph.uses();
  for (auto it = order->rbegin(); it != order->rend(); ++it) {
    SubNode& node = graph.node(*it);
    ControlFlow flow = node.op->traits.control_flow;
    if (flow != ControlFlow::kEnter && flow != ControlFlow::kNextIteration) continue;
    if (is_ref(node.output_types[0])) continue;
    for (const Subgraph::Use& use : uses[index(*it)]) {
      if (use.input < 0) continue;
      node.device = graph.node(use.node).device;
      break;
    }
  }
  for (NodeId id : *order) {
    SubNode& node = graph.node(id);
    ControlFlow flow = node.op->traits.control_flow;
    if (flow == ControlFlow::kSwitch || flow == ControlFlow::kExit) {
      node.device = graph.node(node.inputs[0].node).device;
    }
  }
}

}  // namespace millrace
