#include "millrace/distributed/part_sends.h"

#include "millrace/kernel/device_name.h"
#include "millrace/kernel/rendezvous.h"

namespace millrace {
namespace {

Result<RendezvousKey> key_of(const SubNode& send) {
  RendezvousKey key;
  MR_TRY_ASSIGN(key.send_device, send.attr<std::string>("send_device"));
  MR_TRY_ASSIGN(key.recv_device, send.attr<std::string>("recv_device"));
  MR_TRY_ASSIGN(key.tensor_name, send.attr<std::string>("tensor_name"));
  MR_TRY_ASSIGN(const int64_t incarnation, send.attr<int64_t>("send_device_incarnation"));
  key.incarnation = static_cast<uint64_t>(incarnation);
  return key;
}

// By node: it, or something it depends on, is received, or part of a loop or a branch.
std::vector<bool> find_late(const Subgraph& part) {
  std::vector<bool> late(static_cast<size_t>(part.size()));
  const auto is_late = [&](const SubNode& node) {
    if (node.op->traits.recv || node.op->traits.control_flow != ControlFlow::kNone) return true;
    for (const Output input : node.inputs) {
      if (late[static_cast<size_t>(input.node)]) return true;
    }
    for (const NodeId input : node.control_inputs) {
      if (late[static_cast<size_t>(input)]) return true;
    }
    return false;
  };
  // Once, where nodes are in order.
  for (bool changed = true; changed;) {
    changed = false;
    for (NodeId id = 0; id < part.size(); ++id) {
      if (part.node(id).erased || late[static_cast<size_t>(id)] || !is_late(part.node(id)))
        continue;
      late[static_cast<size_t>(id)] = true;
      changed = true;
    }
  }
  return late;
}

}  // namespace

Result<std::vector<PartSend>> find_part_sends(const Subgraph& part) {
  const std::vector<bool> late = find_late(part);
  std::vector<PartSend> out;
  for (NodeId id = 0; id < part.size(); ++id) {
    const SubNode& node = part.node(id);
    if (node.erased || !node.op->traits.send) continue;
    MR_TRY_ASSIGN(const RendezvousKey key, key_of(node));
    MR_TRY_ASSIGN(const DeviceName from, DeviceName::parse(key.send_device));
    MR_TRY_ASSIGN(const DeviceName to, DeviceName::parse(key.recv_device));
    if (from.task_name() == to.task_name()) continue;
    out.push_back({key.to_string(), to.task_name(), !late[static_cast<size_t>(id)]});
  }
  return out;
}

}  // namespace millrace
