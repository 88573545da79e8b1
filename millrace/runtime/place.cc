#include "millrace/runtime/place.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

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

// The members of a group, in no order. Those at the front have been dealt with, so that a group
// which grows costs no more than what is added to it.
struct Members {
  std::vector<NodeId> ids;
  std::vector<DeviceKind> kinds;  // that have kernels for the first `checked` of them
  size_t checked = 0;
  size_t assigned = 0;

  // The smaller part moves.
  void take(Members& other) {
    if (ids.size() < other.ids.size()) std::swap(*this, other);
    ids.insert(ids.end(), other.ids.begin(), other.ids.end());
    other = Members();
  }
};

// Nodes that must be on one device.
struct Group {
  DeviceName wish;        // of all members together
  std::string wished_by;  // a member that asked, for messages
  Members members;
  Status error;                                // why it cannot be placed
  std::optional<std::vector<int>> candidates;  // devices it may use, best first
  int device = -1;                             // chosen
};

class Placer {
 public:
  Placer(const DeviceSet& devices, const PlaceOptions& options)
      : devices_(devices),
        options_(options),
        kernels_(options.kernels != nullptr ? *options.kernels : KernelRegistry::global()),
        full_ids_(devices.devices().size()) {
    for (const Device::Info& info : devices_.devices()) {
      if (std::find(kinds_.begin(), kinds_.end(), info.kind) == kinds_.end()) {
        kinds_.push_back(info.kind);
      }
    }
  }

  Status place_all(Subgraph& graph) {
    graph_ = &graph;
    extend_groups();
    MR_TRY_ASSIGN(std::vector<NodeId> order, graph_->topological_order());
    std::vector<NodeId> sources;
    for (NodeId id : order) {
      if (is_source(graph_->node(id)) && !group(id).wish.complete()) {
        sources.push_back(id);
      } else {
        MR_TRY(choose(id));
      }
    }
    if (!sources.empty()) uses_ = graph_->uses();
    for (NodeId id : sources) MR_TRY(choose(id));
    for (NodeId id : order) assign(id);
    return ok_status();
  }

  // False when what is known of earlier nodes no longer holds: then a new Placer must do it.
  bool pin_from(Subgraph& graph, NodeId first) {
    graph_ = &graph;
    bool any = false;
    for (NodeId id = first; id < graph_->size() && !any; ++id) {
      ++work_;
      any = !graph_->node(id).erased && has_state(graph_->node(id));
    }
    if (!any) return true;
    extend_groups();
    if (outdated_) return false;
    for (NodeId id = first; id < graph_->size(); ++id) {
      if (graph_->node(id).erased || !has_state(graph_->node(id))) continue;
      if (choose(id).ok()) pin(group(id));
    }
    return true;
  }

  int64_t work() const { return work_; }

 private:
  Group& group(NodeId id) { return groups_[index(root(id))]; }

  NodeId root(NodeId id) {
    while (parent_[index(id)] != id) {
      parent_[index(id)] = parent_[index(parent_[index(id)])];
      id = parent_[index(id)];
    }
    return id;
  }

  // Takes the nodes that were added since the last time.
  void extend_groups() {
    const NodeId first = static_cast<NodeId>(parent_.size());
    parent_.resize(index(graph_->size()));
    groups_.resize(parent_.size());
    pinned_.resize(parent_.size());
    for (NodeId id = first; id < graph_->size(); ++id) {
      ++work_;
      const SubNode& node = graph_->node(id);
      parent_[index(id)] = id;
      if (node.erased) continue;
      groups_[index(id)].members.ids.push_back(id);
      const Result<DeviceName>& wish = graph_->devices().parsed(node.device);
      if (!wish.ok()) {
        groups_[index(id)].error = wish.status().with_prefix(describe(node));
      } else if (!wish->empty()) {
        groups_[index(id)].wish = *wish;
        groups_[index(id)].wished_by = node.name;
      }
    }
    join_classes(first);
    join_references(first);
  }

  void learn_names() {
    for (; named_ < graph_->size(); ++named_) {
      ++work_;
      const SubNode& node = graph_->node(named_);
      if (node.erased) continue;
      by_name_.emplace(node.name, named_);
      outdated_ |= missing_.contains(node.name);
    }
  }

  void join_classes(NodeId first) {
    if (!missing_.empty()) learn_names();
    for (NodeId id = first; id < graph_->size(); ++id) {
      const SubNode& node = graph_->node(id);
      if (node.erased || node.attrs->find(kColocationAttr) == nullptr) continue;
      auto classes = node.attr<std::vector<std::string>>(kColocationAttr);
      if (!classes.ok()) {
        fail(id, classes.status().with_prefix(describe(node)));
        continue;
      }
      learn_names();
      for (const std::string& entry : *classes) {
        if (!entry.starts_with(kColocationPrefix)) continue;
        const std::string name = entry.substr(kColocationPrefix.size());
        auto other = by_name_.find(name);
        if (other == by_name_.end()) {
          fail(id, invalid_argument(describe(node), " must be with \"", name,
                                    "\", which is not in the graph"));
          missing_.insert(name);
        } else {
          join(other->second, id);
        }
      }
    }
  }

  // The holder of a variable or resource and those who use it.
  void join_references(NodeId first) {
    for (NodeId id = first; id < graph_->size(); ++id) {
      const SubNode& node = graph_->node(id);
      if (node.erased || node.op->traits.result) continue;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        Output from = node.inputs[i];
        if (!is_ref(node.input_types[i]) && graph_->output_type(from) != DType::kResource) continue;
        Group& source = group(from.node);
        Group& target = group(id);
        if (!source.wish.empty() && !target.wish.empty() && &source != &target &&
            !source.wish.compatible(target.wish)) {
          MR_LOG(kWarning, describe(node), " asks for ", target.wish.to_string(),
                 " but must be with \"", graph_->node(from.node).name, "\" on ",
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
    kept.members.take(gone.members);
    if (kept.device < 0) kept.device = gone.device;
    if (kept.error.ok()) kept.error = std::move(gone.error);
    if (Status merged = kept.wish.merge(gone.wish, options_.soft); !merged.ok()) {
      fail(to, invalid_argument(describe(graph_->node(a)), " and ", describe(graph_->node(b)),
                                " must be on one device, but \"", kept.wished_by, "\" asks for ",
                                kept.wish.to_string(), " and \"", gone.wished_by, "\" for ",
                                gone.wish.to_string()));
    }
    if (kept.wished_by.empty()) kept.wished_by = std::move(gone.wished_by);
  }

  // The kinds of device that have kernels for all members.
  const std::vector<DeviceKind>& supported(Members& members) {
    if (members.checked == 0) members.kinds = kinds_;
    for (; members.checked < members.ids.size(); ++members.checked) {
      ++work_;
      const SubNode& node = graph_->node(members.ids[members.checked]);
      std::erase_if(members.kinds, [&](DeviceKind kind) {
        return !kernels_.any(node.op->name, kind, *node.attrs);
      });
    }
    return members.kinds;
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
    if (g.candidates && g.members.checked == g.members.ids.size()) return g.error;
    g.candidates.emplace();
    MR_TRY(g.error);
    const std::vector<DeviceKind>& kinds = supported(g.members);
    g.candidates = matching(g.wish, kinds);
    // What is on a device already stays there.
    if (g.candidates->empty() && options_.soft && !g.wish.empty() && g.device < 0) {
      DeviceName task = g.wish;
      task.type.reset();
      task.id.reset();
      g.candidates = matching(task, kinds);
    }
    if (g.candidates->empty()) g.error = with_line(g, explain(g, kinds));
    return g.error;
  }

  // `error` with where the first of the group was made, as far as that is known.
  Status with_line(const Group& g, const Status& error) const {
    std::vector<NodeId> members = g.members.ids;
    std::sort(members.begin(), members.end());
    for (NodeId id : members) {
      const std::string line = describe_origin(graph_->node(id).origin);
      if (!line.empty()) return error.with_line(line);
    }
    return error;
  }

  // Why a group has no device.
  Status explain(const Group& g, const std::vector<DeviceKind>& kinds) const {
    std::vector<NodeId> members = g.members.ids;
    std::sort(members.begin(), members.end());
    std::string what = describe(graph_->node(members[0]));
    if (members.size() > 1) {
      std::vector<std::string> names;
      for (size_t i = 1; i < members.size() && i < 5; ++i) {
        names.push_back(describe(graph_->node(members[i])));
      }
      append_to(what, str_cat(" with ", str_join(names, ", "), members.size() > 5 ? ", ..." : "",
                              ", which must be with it,"));
    }
    if (kinds.empty()) {
      for (NodeId id : members) {
        const SubNode& member = graph_->node(id);
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
    MR_TRY(find_candidates(g));
    if (g.device >= 0) return ok_status();
    int near = near_device(id, g);
    g.device = near >= 0 ? near : best_device(g);
    return ok_status();
  }

  const Device::Info& info(int device) const {
    return devices_.devices()[static_cast<size_t>(device)];
  }
  bool is_clients(int device) const {
    const DeviceName &name = info(device).name, &client = devices_.client().name;
    return name.job == client.job && name.replica == client.replica && name.task == client.task;
  }

  // The first of the best kind, of the client's own task if that has one.
  int best_device(const Group& g) const {
    const int first = g.candidates->front();
    for (int device : *g.candidates) {
      if (info(device).kind == info(first).kind && is_clients(device)) return device;
    }
    return first;
  }

  bool may_use(const Group& g, int device) const {
    return device >= 0 &&
           std::find(g.candidates->begin(), g.candidates->end(), device) != g.candidates->end();
  }

  // Where tensors need not be moved; -1: no preference.
  int near_device(NodeId id, Group& g) {
    const SubNode& node = graph_->node(id);
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

  // Among the devices of the best kind; of several with as many, one of the client's own task.
  // Feeds come from the client and say nothing.
  int most_inputs_device(const Group& g) {
    std::vector<int> votes(devices_.devices().size(), 0);
    for (NodeId id : g.members.ids) {
      for (Output input : graph_->node(id).inputs) {
        if (graph_->node(input.node).op->traits.argument) continue;
        if (int at = device_of(input.node); at >= 0) ++votes[static_cast<size_t>(at)];
      }
    }
    int best = -1;
    for (int device : *g.candidates) {
      const int count = votes[static_cast<size_t>(device)];
      if (info(device).kind != info(g.candidates->front()).kind || count == 0) continue;
      const int most = best < 0 ? 0 : votes[static_cast<size_t>(best)];
      if (count > most || (count == most && is_clients(device) && !is_clients(best))) best = device;
    }
    return best;
  }

  void assign(NodeId id) {
    SubNode& node = graph_->node(id);
    const int device = group(id).device;
    std::optional<DeviceId>& full = full_ids_[static_cast<size_t>(device)];
    if (!full) full = graph_->devices().intern(devices_.full_name(device));
    node.device = *full;
    if (options_.log) MR_LOG(kInfo, describe(node), " on ", graph_->device_name(node));
  }

  // For the session's life: later members go to the same device.
  void pin(Group& g) {
    for (size_t& i = g.members.assigned; i < g.members.ids.size(); ++i) {
      ++work_;
      const NodeId id = g.members.ids[i];
      if (!pinned_[index(id)]) assign(id);
      pinned_[index(id)] = true;
    }
    g.wish = devices_.devices()[static_cast<size_t>(g.device)].name;
  }

  Subgraph* graph_ = nullptr;
  const DeviceSet& devices_;
  const PlaceOptions options_;
  const KernelRegistry& kernels_;
  std::vector<std::optional<DeviceId>> full_ids_;  // by device: its id in the graph, once used
  std::vector<DeviceKind> kinds_;                  // that there are
  std::vector<NodeId> parent_;                     // union-find
  std::vector<Group> groups_;                      // by root
  std::vector<bool> pinned_;                       // by node
  std::vector<std::vector<Subgraph::Use>> uses_;
  std::unordered_map<std::string, NodeId> by_name_;  // of the nodes before `named_`
  NodeId named_ = 0;
  std::unordered_set<std::string> missing_;  // names that colocation asked for and nobody has
  bool outdated_ = false;                    // one of them has come
  int64_t work_ = 0;
};

}  // namespace

Status place(Subgraph& graph, const DeviceSet& devices, const PlaceOptions& options) {
  return Placer(devices, options).place_all(graph);
}

struct Pinner::Impl {
  const DeviceSet& devices;
  const PlaceOptions options;
  Placer placer;
  int64_t earlier_work = 0;

  Impl(const DeviceSet& set, const PlaceOptions& place_options)
      : devices(set), options(place_options), placer(set, place_options) {}
};

Pinner::Pinner(const DeviceSet& devices, const PlaceOptions& options)
    : impl_(std::make_unique<Impl>(devices, options)) {}
Pinner::Pinner(Pinner&&) noexcept = default;
Pinner& Pinner::operator=(Pinner&&) noexcept = default;
Pinner::~Pinner() = default;

void Pinner::pin(Subgraph& graph, NodeId first) {
  if (impl_->placer.pin_from(graph, first)) return;
  const int64_t work = impl_->earlier_work + impl_->placer.work();
  impl_ = std::make_unique<Impl>(impl_->devices, impl_->options);
  impl_->earlier_work = work;
  MR_CHECK(impl_->placer.pin_from(graph, first));
}

int64_t Pinner::work() const { return impl_->earlier_work + impl_->placer.work(); }

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
