#include "millrace/runtime/partition.h"

#include <map>
#include <optional>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "millrace/runtime/control_loop.h"

namespace millrace {
namespace {

size_t index(NodeId id) { return static_cast<size_t>(id); }

class Cutter {
 public:
  Cutter(Subgraph graph, PartitionBy by, const DeviceSet& devices)
      : graph_(std::move(graph)), by_(by), devices_(devices) {}

  Result<std::vector<Partition>> run() {
    MR_TRY(find_locations());
    if (part_of_location_.size() <= 1) return whole();
    MR_TRY_ASSIGN(loops_, add_control_loops(graph_, part_of_device_));
    for (const SubNode& node : graph_.nodes()) names_.insert(node.name);
    MR_TRY(add_parts());
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (!graph_.node(id).erased) MR_TRY(connect(id));
    }
    return std::move(parts_);
  }

 private:
  const std::string& device(NodeId id) const { return graph_.device_name(graph_.node(id)); }
  int part(NodeId id) const { return part_[index(id)]; }
  Subgraph& part_graph(int p) { return parts_[static_cast<size_t>(p)].graph; }

  Status find_locations() {
    std::vector<const std::string*> location_of(index(graph_.devices().size()));
    info_.resize(location_of.size());
    for (const SubNode& node : graph_.nodes()) {
      if (node.erased || location_of[index(node.device)] != nullptr) continue;
      const std::string& name = graph_.device_name(node);
      const int found = devices_.find(name);
      if (found < 0) {
        return invalid_argument(node.op->name, " \"", node.name, "\" is on \"", name,
                                "\", which is not one of the devices ", devices_.to_string());
      }
      const Device::Info& info = devices_.devices()[static_cast<size_t>(found)];
      info_[index(node.device)] = &info;
      location_of[index(node.device)] =
          &part_of_location_
               .try_emplace(by_ == PartitionBy::kDevice ? name : info.name.task_name(), 0)
               .first->first;
    }
    int next = 0;
    for (auto& [location, number] : part_of_location_) number = next++;
    for (const std::string* location : location_of) {
      part_of_device_.push_back(location != nullptr ? part_of_location_.at(*location) : -1);
    }
    return ok_status();
  }

  Result<std::vector<Partition>> whole() {
    std::vector<Partition> out;
    for (const auto& [location, number] : part_of_location_) {
      graph_.compact();
      out.push_back({location, std::move(graph_)});
    }
    return out;
  }

  // Every node, without its edges, goes to its part.
  Status add_parts() {
    for (const auto& [location, number] : part_of_location_) {
      parts_.push_back({location, graph_.derived()});
    }
    part_.assign(index(graph_.size()), -1);
    new_id_.assign(index(graph_.size()), -1);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const SubNode& node = graph_.node(id);
      if (node.erased) continue;
      SubNode copy = node;
      copy.inputs.clear();
      copy.control_inputs.clear();
      part_[index(id)] = part_of_device_[index(node.device)];
      new_id_[index(id)] = part_graph(part(id)).add(std::move(copy));
    }
    return ok_status();
  }

  Status connect(NodeId id) {
    const SubNode& node = graph_.node(id);
    std::vector<Output> inputs;
    std::vector<NodeId> controls;
    std::vector<NodeId> reference_recvs;  // in the part, like all below
    std::vector<NodeId> other_inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      Output from = node.inputs[i];
      int64_t edge = next_edge_++;
      if (part(from.node) == part(id)) {
        inputs.push_back({new_id_[index(from.node)], from.index});
        other_inputs.push_back(inputs.back().node);
        continue;
      }
      bool reference = is_ref(graph_.output_type(from));
      if (reference && is_ref(node.input_types[i])) {
        return invalid_argument(node.op->name, " \"", node.name, "\" on ", device(id),
                                " needs the variable \"", graph_.node(from.node).name,
                                "\" itself, which is on ", device(from.node));
      }
      MR_TRY_ASSIGN(NodeId recv, transfer(from, id, edge, /*share=*/!reference));
      inputs.push_back({recv, 0});
      (reference ? reference_recvs : other_inputs).push_back(recv);
    }
    for (NodeId c : node.control_inputs) {
      int64_t edge = next_edge_++;
      if (part(c) == part(id)) {
        controls.push_back(new_id_[index(c)]);
      } else {
        MR_TRY_ASSIGN(NodeId after, transfer({c, -1}, id, edge, /*share=*/true));
        controls.push_back(after);
      }
      other_inputs.push_back(controls.back());
    }
    // The variable is read as late as it would be on one device. A Merge waits for no more than
    // one.
    if (node.op->traits.control_flow != ControlFlow::kMerge) {
      for (NodeId recv : reference_recvs) {
        std::vector<NodeId>& waits = part_graph(part(id)).node(recv).control_inputs;
        waits.insert(waits.end(), other_inputs.begin(), other_inputs.end());
      }
    }
    SubNode& out = part_graph(part(id)).node(new_id_[index(id)]);
    out.inputs = std::move(inputs);
    out.control_inputs = std::move(controls);
    return ok_status();
  }

  // The node in the part of `to` that stands for `from` (index -1: a control edge).
  Result<NodeId> transfer(Output from, NodeId to, int64_t edge, bool share) {
    auto key = std::tuple(from.node, from.index, part(to));
    if (share) {
      if (auto it = transfers_.find(key); it != transfers_.end()) return it->second;
    }
    Result<NodeId> added = add_transfer(from, to, edge);
    if (added.ok() && share) transfers_.emplace(key, *added);
    return added;
  }

  Result<NodeId> add_transfer(Output from, NodeId to, int64_t edge) {
    const SubNode& source = graph_.node(from.node);
    const DeviceId target_device = graph_.node(to).device;
    MR_TRY(check_every_iteration(from.node, to));
    Subgraph& here = part_graph(part(from.node));
    Subgraph& there = part_graph(part(to));

    Output sent{new_id_[index(from.node)], from.index};
    DType type = DType::kFloat;
    if (from.index >= 0) {
      type = base_type(graph_.output_type(from));
    } else {
      MR_TRY_ASSIGN(NodeId empty,
                    add_empty_constant(here, new_name(source.name), {sent.node}, source.device));
      here.node(empty).origin = source.origin;
      sent = {empty, 0};
    }
    AttrMap attrs = {{"tensor_name", str_cat("edge_", edge, "_", source.name)},
                     {"send_device", device(from.node)},
                     {"recv_device", device(to)},
                     {"send_device_incarnation",
                      static_cast<int64_t>(info_[index(source.device)]->incarnation)}};
    AttrMap send_attrs = attrs;
    send_attrs.set("T", type);
    MR_TRY_ASSIGN(NodeId send, here.add(new_name(source.name), "_Send", {sent}, {},
                                        std::move(send_attrs), source.device));
    here.node(send).origin = source.origin;

    std::vector<NodeId> gates;
    if (int frame = loops_.output_frame[index(from.node)]; frame != 0) {
      // add_control_loops() made one for every edge between parts.
      auto loop = loops_.merges.find({frame, target_device});
      if (loop == loops_.merges.end()) {
        return internal("\"", source.name, "\" has no control loop on ", device(to));
      }
      gates.push_back(new_id_[index(loop->second)]);
    }
    attrs.set("tensor_type", type);
    MR_TRY_ASSIGN(NodeId recv, there.add(new_name(source.name), "_Recv", {}, std::move(gates),
                                         std::move(attrs), target_device));
    there.node(recv).origin = source.origin;
    if (from.index >= 0) return recv;
    // A _Recv that got a dead value is not dead itself: only what reads its output is.
    MR_TRY_ASSIGN(NodeId after, there.add(new_name(source.name), "Identity", {Output{recv, 0}}, {},
                                          {{"T", type}}, target_device));
    there.node(after).origin = source.origin;
    return after;
  }

  // The other side expects a value in each iteration of the loop.
  Status check_every_iteration(NodeId from, NodeId to) const {
    const SubNode& source = graph_.node(from);
    ControlFlow flow = source.op->traits.control_flow;
    bool every = flow != ControlFlow::kNextIteration;
    if (flow == ControlFlow::kEnter) {
      MR_TRY_ASSIGN(every, source.attr<bool>("is_constant"));
    }
    if (every) return ok_status();
    return invalid_argument(source.op->name, " \"", source.name, "\" on ", device(from),
                            " must be on the device of \"", graph_.node(to).name, "\", ",
                            device(to));
  }

  std::string new_name(const std::string& base) {
    // By task and by device differ, since a part is cut again.
    std::string_view mark = by_ == PartitionBy::kTask ? "/_S" : "/_";
    std::string name;
    do {
      name = str_cat(base, mark, ++next_name_);
    } while (names_.contains(name));
    return name;
  }

  Subgraph graph_;
  PartitionBy by_;
  const DeviceSet& devices_;
  std::vector<const Device::Info*> info_;  // by device that is used
  std::vector<int> part_of_device_;
  std::map<std::string, int> part_of_location_;
  ControlLoops loops_;
  std::vector<Partition> parts_;
  std::vector<int> part_;       // by node
  std::vector<NodeId> new_id_;  // by node, in its part
  std::map<std::tuple<NodeId, int32_t, int>, NodeId> transfers_;
  std::unordered_set<std::string> names_;
  int64_t next_edge_ = 0;
  int64_t next_name_ = 0;
};

}  // namespace

Result<std::vector<Partition>> partition(const Subgraph& graph, PartitionBy by,
                                         const DeviceSet& devices) {
  return Cutter(graph, by, devices).run();
}

}  // namespace millrace
