#include "millrace/distributed/part_sends.h"

#include <algorithm>
#include <unordered_map>

#include "millrace/kernel/device_name.h"
#include "millrace/kernel/rendezvous.h"

namespace millrace {
namespace {

Result<RendezvousKey> key_of(const SubNode& node) {
  RendezvousKey key;
  MR_TRY_ASSIGN(key.send_device, node.attr<std::string>("send_device"));
  MR_TRY_ASSIGN(key.recv_device, node.attr<std::string>("recv_device"));
  MR_TRY_ASSIGN(key.tensor_name, node.attr<std::string>("tensor_name"));
  MR_TRY_ASSIGN(const int64_t incarnation, node.attr<int64_t>("send_device_incarnation"));
  key.incarnation = static_cast<uint64_t>(incarnation);
  return key;
}

// The nodes of a part, with the round in which each can run.
struct PartRounds {
  const Subgraph* graph;
  std::vector<int> rounds;                       // by node
  std::vector<std::pair<NodeId, size_t>> sends;  // and which of all sends it is
  std::unordered_map<NodeId, size_t> receives;   // what comes from other tasks

  explicit PartRounds(const Subgraph* part)
      : graph(part), rounds(static_cast<size_t>(part->size())) {}

  int round_of(NodeId id, bool own, const std::vector<PartSend>& all) const {
    const SubNode& node = graph->node(id);
    if (node.op->traits.control_flow != ControlFlow::kNone) return PartSend::kUnknown;
    int round = 0;
    if (node.op->traits.recv) {
      const auto it = receives.find(id);
      round = it == receives.end() ? PartSend::kUnknown : all[it->second].round + (own ? 1 : 0);
    }
    for (const Output input : node.inputs) {
      round = std::max(round, rounds[static_cast<size_t>(input.node)]);
    }
    for (const NodeId input : node.control_inputs) {
      round = std::max(round, rounds[static_cast<size_t>(input)]);
    }
    return std::min(round, PartSend::kUnknown);
  }

  // True when what it sends is later than was known.
  bool update(bool own, std::vector<PartSend>& all) {
    // Once, where nodes are in order.
    for (bool changed = true; changed;) {
      changed = false;
      for (NodeId id = 0; id < graph->size(); ++id) {
        if (graph->node(id).erased) continue;
        int& known = rounds[static_cast<size_t>(id)];
        const int round = round_of(id, own, all);
        if (round <= known) continue;
        known = round;
        changed = true;
      }
    }
    bool later = false;
    for (const auto& [node, send] : sends) {
      const int round = rounds[static_cast<size_t>(node)];
      if (round <= all[send].round) continue;
      all[send].round = round;
      later = true;
    }
    return later;
  }
};

}  // namespace

Result<std::vector<PartSend>> find_part_sends(const std::vector<Partition>& parts,
                                              std::string_view own_task) {
  std::vector<PartSend> all;
  std::vector<PartRounds> known;
  std::unordered_map<std::string, size_t> by_key;
  for (const Partition& part : parts) {
    PartRounds& rounds = known.emplace_back(&part.graph);
    for (NodeId id = 0; id < part.graph.size(); ++id) {
      const SubNode& node = part.graph.node(id);
      if (node.erased || !node.op->traits.send) continue;
      MR_TRY_ASSIGN(const RendezvousKey key, key_of(node));
      MR_TRY_ASSIGN(const DeviceName to, DeviceName::parse(key.recv_device));
      if (to.task_name() == part.location) continue;
      const bool third = part.location != own_task && to.task_name() != own_task;
      by_key.emplace(key.to_string(), all.size());
      rounds.sends.emplace_back(id, all.size());
      all.push_back(
          {key.to_string(), part.location, to.task_name(), third ? PartSend::kUnknown : 0});
    }
  }
  for (PartRounds& part : known) {
    for (NodeId id = 0; id < part.graph->size(); ++id) {
      const SubNode& node = part.graph->node(id);
      if (node.erased || !node.op->traits.recv) continue;
      MR_TRY_ASSIGN(const RendezvousKey key, key_of(node));
      const auto it = by_key.find(key.to_string());
      if (it != by_key.end()) part.receives.emplace(id, it->second);
    }
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < known.size(); ++i) {
      changed |= known[i].update(parts[i].location == own_task, all);
    }
  }
  return all;
}

}  // namespace millrace
