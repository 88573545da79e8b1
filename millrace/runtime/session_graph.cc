#include "millrace/runtime/session_graph.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <set>
#include <string>
#include <unordered_map>

#include "millrace/graph/function.h"
#include "millrace/graph/internal_op.h"
#include "millrace/runtime/optimize.h"

namespace millrace {
namespace {

constexpr std::string_view kColocation = "loc:@";

size_t index(NodeId id) { return static_cast<size_t>(id); }

// What a feed's or fetch's node is called: a name that a GraphDef may hold, so without the ":" of
// "node:1".
std::string boundary_name(std::string_view prefix, std::string tensor, size_t position) {
  std::replace(tensor.begin(), tensor.end(), ':', '_');
  return str_cat(prefix, tensor, "_", position);
}

// Collects the nodes that a request needs and writes them, feeds and fetches replaced, to a new
// graph.
class Pruner {
 public:
  Pruner(const Graph& client, const Subgraph& lowered, const std::vector<NodeId>& lowered_of,
         const LoweredOutputs& lowered_outputs, const DeviceSet& devices,
         const Signature& signature)
      : client_(client),
        lowered_(lowered),
        lowered_of_(lowered_of),
        lowered_outputs_(lowered_outputs),
        devices_(devices),
        signature_(signature),
        needed_(static_cast<size_t>(lowered.size()), false),
        out_(lowered.derived()) {}

  Result<Subgraph> run() {
    if (signature_.fetches.empty() && signature_.targets.empty()) {
      return invalid_argument("nothing to run: neither a fetch nor a target was given");
    }
    MR_TRY(read_feeds());
    MR_TRY(read_fetches());
    MR_TRY(read_targets());
    MR_TRY(spread());
    MR_TRY(add_feeds());
    add_nodes();
    MR_TRY(add_fetches());
    return std::move(out_);
  }

 private:
  static uint64_t key(Output o) {
    return static_cast<uint64_t>(o.node) << 32 | static_cast<uint32_t>(o.index);
  }

  Result<Output> resolve(const std::string& name, std::string_view what) const {
    Result<Output> found = client_.parse_output(name);
    if (!found.ok()) return found.status().with_prefix(str_cat(what, " '", name, "'"));
    if (found->node >= static_cast<NodeId>(lowered_of_.size())) {
      return internal(what, " '", name, "' was added after the session last looked");
    }
    return lowered_outputs_({lowered_of_[index(found->node)], found->index});
  }

  Status read_feeds() {
    for (size_t i = 0; i < signature_.feeds.size(); ++i) {
      MR_TRY_ASSIGN(Output output, resolve(signature_.feeds[i], "feed"));
      if (!feed_of_.try_emplace(key(output), static_cast<int>(i)).second) {
        return invalid_argument("tensor '", signature_.feeds[i], "' is fed twice");
      }
      feeds_.push_back(output);
    }
    return ok_status();
  }

  Status read_fetches() {
    for (const std::string& name : signature_.fetches) {
      if (std::find(signature_.feeds.begin(), signature_.feeds.end(), name) !=
          signature_.feeds.end()) {
        return invalid_argument("tensor '", name, "' is both fed and fetched");
      }
      NodeId id = client_.find(name);
      if (id >= 0 && client_.node(id).num_outputs() == 0) {
        return invalid_argument("fetch '", name, "' has no outputs: run it as a target");
      }
      MR_TRY_ASSIGN(Output output, resolve(name, "fetch"));
      fetches_.push_back(output);
      need(output);
    }
    return ok_status();
  }

  Status read_targets() {
    for (const std::string& name : signature_.targets) {
      NodeId id = client_.find(name);
      if (id < 0 || id >= static_cast<NodeId>(lowered_of_.size())) {
        return not_found("target '", name, "' is not a node of the graph");
      }
      targets_.insert(lowered_of_[index(id)]);
      need(lowered_of_[index(id)]);
    }
    return ok_status();
  }

  void need(NodeId id) {
    if (needed_[index(id)]) return;
    needed_[index(id)] = true;
    todo_.push_back(id);
  }
  void need(Output output) {
    if (!feed_of_.contains(key(output))) need(output.node);
  }

  // The feed that stands for a node in control edges; -1: the node itself.
  int feed_for_control(NodeId id) const {
    if (!lowered_.node(id).op->traits.placeholder) return -1;
    auto it = feed_of_.find(key({id, 0}));
    return it == feed_of_.end() ? -1 : it->second;
  }

  Status spread() {
    std::set<std::string> unknown;
    while (!todo_.empty()) {
      NodeId id = todo_.back();
      todo_.pop_back();
      const SubNode& node = lowered_.node(id);
      if (node.op->unknown) unknown.insert(node.op->name);
      MR_TRY(lowered_outputs_.error(id));
      for (Output input : node.inputs) need(input);
      for (NodeId c : node.control_inputs) {
        if (feed_for_control(c) < 0) need(c);
      }
    }
    if (unknown.empty()) return ok_status();
    return not_found("Op type not registered: ", str_join(unknown, ", "),
                     "; what was asked for needs nodes of ", unknown.size() == 1 ? "it" : "them");
  }

  Status add_feeds() {
    client_device_ = out_.devices().intern(devices_.client_name());
    for (size_t i = 0; i < feeds_.size(); ++i) {
      DType type = base_type(lowered_.output_type(feeds_[i]));
      MR_TRY_ASSIGN(NodeId id,
                    out_.add(boundary_name("_recv_", signature_.feeds[i], i), "_Arg", {}, {},
                             {{"T", type}, {"index", static_cast<int64_t>(i)}}, client_device_));
      feed_nodes_.push_back(id);
    }
    return ok_status();
  }

  Output mapped(Output o) const {
    auto it = feed_of_.find(key(o));
    if (it != feed_of_.end()) return {feed_nodes_[static_cast<size_t>(it->second)], 0};
    return {map_[index(o.node)], o.index};
  }

  void add_nodes() {
    map_.assign(needed_.size(), -1);
    NodeId next = out_.size();
    for (size_t i = 0; i < needed_.size(); ++i) {
      if (needed_[i]) map_[i] = next++;
    }
    for (NodeId id = 0; id < lowered_.size(); ++id) {
      if (!needed_[index(id)]) continue;
      SubNode node = lowered_.node(id);
      for (Output& input : node.inputs) input = mapped(input);
      for (NodeId& c : node.control_inputs) {
        int feed = feed_for_control(c);
        c = feed >= 0 ? feed_nodes_[static_cast<size_t>(feed)] : map_[index(c)];
      }
      if (targets_.contains(id)) node.set_attr(kTargetAttr, true);
      keep_colocation(node);
      out_.add(std::move(node));
    }
    for (const SubNode& node : out_.nodes()) {
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (is_ref(node.input_types[i]) && !is_ref(out_.output_type(node.inputs[i]))) {
          fed_reference_ = str_cat(node.op->name, " \"", node.name, "\" input ", i);
        }
      }
    }
  }

  // A node that must be with one that is not needed goes where that one asks to be, together with
  // the others of whom that is true.
  void keep_colocation(SubNode& node) {
    auto classes = colocated_with(node);
    if (classes.empty()) return;
    bool changed = false;
    for (std::string& entry : classes) {
      if (!entry.starts_with(kColocation)) continue;
      NodeId other = find_lowered(entry.substr(kColocation.size()));
      if (other < 0 || needed_[index(other)]) continue;
      other = follow_colocation(other);
      if (node.device == 0) node.device = lowered_.node(other).device;
      const std::string& with = needed_[index(other)]
                                    ? lowered_.node(other).name
                                    : stands_for_.try_emplace(other, node.name).first->second;
      entry = str_cat(kColocation, with);
      changed = true;
    }
    if (changed) node.set_attr("_class", std::move(classes));
  }

  static std::vector<std::string> colocated_with(const SubNode& node) {
    if (node.attrs->find("_class") == nullptr) return {};
    auto classes = node.attr<std::vector<std::string>>("_class");
    return classes.ok() ? *std::move(classes) : std::vector<std::string>();
  }

  // From a node that is not needed to the one that says where it is: a needed one, or the last.
  NodeId follow_colocation(NodeId id) {
    for (int hops = 0; hops < 64 && !needed_[index(id)]; ++hops) {
      NodeId next = -1;
      for (const std::string& entry : colocated_with(lowered_.node(id))) {
        if (next < 0 && entry.starts_with(kColocation)) {
          next = find_lowered(entry.substr(kColocation.size()));
        }
      }
      if (next < 0 || next == id) break;
      id = next;
    }
    return id;
  }

  NodeId find_lowered(std::string_view name) {
    if (by_name_.empty()) {
      for (NodeId id = 0; id < lowered_.size(); ++id) by_name_.emplace(lowered_.node(id).name, id);
    }
    auto it = by_name_.find(name);
    return it == by_name_.end() ? -1 : it->second;
  }

  Status add_fetches() {
    if (!fed_reference_.empty()) {
      return invalid_argument(fed_reference_,
                              " needs the variable itself, but a value was fed in its place");
    }
    for (size_t i = 0; i < fetches_.size(); ++i) {
      Output from = mapped(fetches_[i]);
      MR_TRY(
          out_.add(boundary_name("_send_", signature_.fetches[i], i), "_Retval", {from}, {},
                   {{"T", base_type(out_.output_type(from))}, {"index", static_cast<int64_t>(i)}},
                   client_device_)
              .status());
    }
    return ok_status();
  }

  const Graph& client_;
  const Subgraph& lowered_;
  const std::vector<NodeId>& lowered_of_;
  const LoweredOutputs& lowered_outputs_;
  const DeviceSet& devices_;
  const Signature& signature_;
  std::vector<bool> needed_;
  std::vector<NodeId> todo_;
  std::vector<Output> feeds_, fetches_;
  std::set<NodeId> targets_;
  std::unordered_map<std::string_view, NodeId> by_name_;  // of lowered_; made when asked for
  std::unordered_map<NodeId, std::string> stands_for_;    // by node that is not needed
  std::unordered_map<uint64_t, int> feed_of_;
  std::vector<NodeId> feed_nodes_;
  std::vector<NodeId> map_;
  std::string fed_reference_;
  DeviceId client_device_ = 0;
  Subgraph out_;
};

bool keeps_shapes(const SubNode& node) {
  if (std::none_of(node.input_types.begin(), node.input_types.end(), is_ref)) return true;
  const Result<bool> validates = node.attr<bool>("validate_shape");
  return !validates.ok() || *validates;
}

}  // namespace

std::string Signature::key() const {
  std::string out;
  for (const std::vector<std::string>* list : {&feeds, &fetches, &targets}) {
    // With lengths: a wrong name may hold any character, and must not look like two right ones.
    for (const std::string& name : *list) {
      char digits[20];
      out.append(digits, std::to_chars(digits, std::end(digits), name.size()).ptr);
      out += ':';
      out += name;
    }
    out += ';';
  }
  if (check_numerics) out += "finite";
  return out;
}

SessionGraph::SessionGraph(Ref<Graph> graph, const DeviceSet& devices, PlaceOptions place_options)
    : graph_(std::move(graph)),
      devices_(devices),
      place_options_(place_options),
      lowered_(graph_->registry()),
      pinner_(devices, place_options) {}

Status SessionGraph::extend() {
  // Read before the nodes: a node widened later is seen at the next look.
  int64_t revision = graph_->revision();
  int count = graph_->num_nodes();
  if (revision != revision_) {
    MR_TRY(lower_anew(count));
    revision_ = revision;
    return ok_status();
  }
  if (count == taken_) return ok_status();
  int before = lowered_.size();
  if (Status status = take(count, {}); !status.ok()) {
    lowered_.nodes().resize(static_cast<size_t>(before));
    lowered_of_.resize(static_cast<size_t>(taken_));
    lowered_outputs_.erase_from(before);
    return status;
  }
  taken_ = count;
  return ok_status();
}

Status SessionGraph::take(int count, const PinnedDevices& pinned) {
  for (NodeId id = taken_; id < count; ++id) {
    const Node& node = graph_->node(id);
    Status status = refuse_internal_op(graph_->registry(), node.op_name());
    if (!status.ok()) {
      return status.with_prefix(str_cat(node.op_name(), " \"", node.name(), "\""));
    }
  }
  graph_->freeze(count);
  NodeId first = lowered_.size();
  for (NodeId id = taken_; id < count; ++id) lowered_of_.push_back(first + (id - taken_));
  for (NodeId id = taken_; id < count; ++id) lowered_.add_copy(graph_->node(id), lowered_of_);
  for (NodeId id = first; id < lowered_.size(); ++id) {
    for (Output& input : lowered_.node(id).inputs) input = lowered_outputs_(input);
  }
  MR_TRY(lower_functions(lowered_, first, graph_->shared_functions(), lowered_outputs_));
  for (NodeId id = first; id < lowered_.size(); ++id) {
    auto it = pinned.find(lowered_.node(id).name);
    if (it != pinned.end()) lowered_.node(id).device = lowered_.devices().intern(it->second);
  }
  pinner_.pin(lowered_, first);
  for (NodeId id = first; id < lowered_.size(); ++id)
    shapes_hold_ &= keeps_shapes(lowered_.node(id));
  return ok_status();
}

// Names are a pure function of the path, so what is pinned stays where it was.
Status SessionGraph::lower_anew(int count) {
  PinnedDevices pinned;
  for (const SubNode& node : lowered_.nodes()) {
    if (node.op->traits.stateful) pinned.emplace(node.name, lowered_.device_name(node));
  }
  SessionGraph fresh(graph_, devices_, place_options_);
  MR_TRY(fresh.take(count, pinned));
  lowered_ = std::move(fresh.lowered_);
  pinner_ = std::move(fresh.pinner_);
  lowered_of_ = std::move(fresh.lowered_of_);
  lowered_outputs_ = std::move(fresh.lowered_outputs_);
  shapes_hold_ = fresh.shapes_hold_;
  taken_ = count;
  return ok_status();
}

Result<Subgraph> SessionGraph::prune(const Signature& signature) const {
  return Pruner(*graph_, lowered_, lowered_of_, lowered_outputs_, devices_, signature).run();
}

std::vector<std::vector<int>> fetch_dependencies(const Subgraph& pruned,
                                                 const Signature& signature) {
  std::vector<std::vector<int>> out(signature.fetches.size());
  for (NodeId id = 0; id < pruned.size(); ++id) {
    const SubNode& fetch = pruned.node(id);
    if (!fetch.op->traits.result) continue;
    std::vector<int>& feeds = out[static_cast<size_t>(fetch.attr<int64_t>("index").value())];
    std::vector<bool> seen(static_cast<size_t>(pruned.size()), false);
    std::vector<NodeId> todo = {id};
    while (!todo.empty()) {
      NodeId at = todo.back();
      todo.pop_back();
      if (seen[index(at)]) continue;
      seen[index(at)] = true;
      const SubNode& node = pruned.node(at);
      if (node.op->traits.argument) {
        feeds.push_back(static_cast<int>(node.attr<int64_t>("index").value()));
      }
      for (Output input : node.inputs) todo.push_back(input.node);
      for (NodeId c : node.control_inputs) todo.push_back(c);
    }
  }
  return out;
}

}  // namespace millrace
