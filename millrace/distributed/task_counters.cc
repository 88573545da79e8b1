#include "millrace/distributed/task_counters.h"

namespace millrace {
namespace {

int64_t read(const std::atomic<int64_t>& counter) {
  return counter.load(std::memory_order_relaxed);
}

}  // namespace

TaskCounters::TaskCounters(const std::vector<std::string>& peers)
    : names_(peers), peers_(peers.size()) {
  for (size_t i = 0; i < names_.size(); ++i) by_name_.emplace(names_[i], &peers_[i]);
}

TaskCounters::Peer& TaskCounters::find(std::string_view task) {
  const auto it = by_name_.find(task);
  return it == by_name_.end() ? other_ : *it->second;
}

void TaskCounters::tell(WorkerActivity& activity) const {
  // What ended first: a step that ends meanwhile is not one that ended before it began.
  activity.steps_failed = read(steps_failed_);
  activity.steps_ended = read(steps_ended_);
  activity.steps_begun = read(steps_begun_);
  const auto add_row = [&](std::string_view peer, std::string_view kind, int64_t received,
                           int64_t sent) {
    if (received == 0 && sent == 0) return;
    activity.transfers.push_back({std::string(peer), std::string(kind), received, sent});
  };
  const auto add_peer = [&](std::string_view name, const Peer& peer) {
    add_row(name, "tensor", read(peer.tensors.received_), read(peer.tensors.sent_));
    add_row(name, "collective", read(peer.together.received_), read(peer.together.sent_));
  };
  for (size_t i = 0; i < names_.size(); ++i) add_peer(names_[i], peers_[i]);
  add_peer(kOther, other_);
  add_row(kMaster, "feed", read(feed_bytes_), 0);
  add_row(kMaster, "fetch", 0, read(fetch_bytes_));
  add_row(kMaster, "graph", read(graph_bytes_), 0);
}

}  // namespace millrace
