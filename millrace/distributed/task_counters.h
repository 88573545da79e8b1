#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "millrace/distributed/worker_interface.h"

namespace millrace {

// What a task has done since it began, for those who watch it. To count is an addition without a
// lock; for a tensor between tasks there is a look at a table that never changes before it.
// Thread-safe; what is read while others count is of about the same moment.
class TaskCounters {
  using Counter = std::atomic<int64_t>;
  static void add(Counter& counter, size_t number) {
    counter.fetch_add(static_cast<int64_t>(number), std::memory_order_relaxed);
  }

 public:
  // Bytes of tensors that are exchanged with another task.
  class Traffic {
   public:
    void received(size_t bytes) { add(received_, bytes); }
    void sent(size_t bytes) { add(sent_, bytes); }

   private:
    friend class TaskCounters;
    Counter received_{0}, sent_{0};
  };
  // Who stands for all masters, and for tasks that were not known when this was made.
  static constexpr std::string_view kMaster = "master";
  static constexpr std::string_view kOther = "other";

  // `peers` are names of tasks, "/job:J/replica:R/task:T".
  explicit TaskCounters(const std::vector<std::string>& peers);
  TaskCounters(const TaskCounters&) = delete;
  TaskCounters& operator=(const TaskCounters&) = delete;

  void step_begun() { add(steps_begun_, 1); }
  void step_ended(bool failed) {
    if (failed) add(steps_failed_, 1);
    add(steps_ended_, 1);
  }

  // What steps exchange with a task, and with the task of a device that has this full name.
  Traffic& with_task(std::string_view task) { return find(task).tensors; }
  Traffic& with_device(std::string_view device) {
    return with_task(device.substr(0, device.rfind('/')));
  }
  // What collective operations exchange with a task.
  Traffic& together_with(std::string_view task) { return find(task).together; }
  // What masters said, or were told.
  void feeds_received(size_t bytes) { add(feed_bytes_, bytes); }
  void fetches_sent(size_t bytes) { add(fetch_bytes_, bytes); }
  void graph_received(size_t bytes) { add(graph_bytes_, bytes); }

  // Writes all of it there; peers that nothing came from or went to are left out.
  void tell(WorkerActivity& activity) const;

 private:
  // Steps and tensors are counted by different threads: not in one line of the cache.
  alignas(64) Counter steps_begun_{0};
  Counter steps_ended_{0}, steps_failed_{0};
  Counter feed_bytes_{0}, fetch_bytes_{0}, graph_bytes_{0};
  struct Peer {
    Traffic tensors, together;
  };
  Peer& find(std::string_view task);

  alignas(64) Peer other_;
  const std::vector<std::string> names_;
  std::vector<Peer> peers_;                              // by name
  std::unordered_map<std::string_view, Peer*> by_name_;  // into the two
};

}  // namespace millrace
