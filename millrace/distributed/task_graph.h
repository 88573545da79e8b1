#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "millrace/distributed/task_sessions.h"
#include "millrace/runtime/boundary.h"
#include "millrace/runtime/plan_set.h"

namespace millrace {

// What the graphs take that a task has, also those that are only used by steps still. Thread-safe.
class GraphBytes : public RefCounted {
 public:
  // `limit` is MILLRACE_CLUSTER_MAX_GRAPH_MB's; `task` is for messages.
  GraphBytes(std::string task, int64_t limit) : task_(std::move(task)), limit_(limit) {}

  // Counts a graph, also past the limit, where it is RESOURCE_EXHAUSTED: graphs that come at once
  // see each other.
  Status add(int64_t bytes);
  void drop(int64_t bytes);
  // The allocator keeps the small pieces of memory that graphs took, scattered among those of
  // others. Once so many bytes were dropped, it is told to give whole pages back.
  void give_back(int64_t at_least);

 private:
  const std::string task_;
  const int64_t limit_;
  std::atomic<int64_t> total_{0};
  std::atomic<int64_t> dropped_{0};  // since memory was given back
};

// A graph that a master has registered on a task, ready to run. Constant once it is made.
class TaskGraph : public RefCounted {
 public:
  // Compiles `parsed`, of which `boundary` was read, for the devices of `session`, which is open.
  // Counted in `bytes` for as long as the graph lives; RESOURCE_EXHAUSTED past its limit.
  static Result<Ref<TaskGraph>> compile(const Subgraph& parsed, Boundary boundary,
                                        Ref<TaskSession> session,
                                        const RegisterGraphRequest& request,
                                        const TaskContext& task, Ref<GraphBytes> bytes);

  const Ref<TaskSession>& session() const { return session_; }
  const Boundary& boundary() const { return boundary_; }
  const PlanSet& plans() const { return *plans_; }
  // Nothing in it waits, but for what it receives from others: so many values.
  bool prompt() const { return prompt_; }
  size_t receives() const { return receives_; }

  // Where the node of a wait (WorkerActivity::Step) was made; empty where that is not known.
  std::string where_defined(const std::string& wait) const;

 private:
  TaskGraph() = default;
  ~TaskGraph() override;

  Ref<GraphBytes> counted_;  // null: not counted yet
  Ref<PlanSet> plans_;
  bool prompt_ = false;
  size_t receives_ = 0;
  Boundary boundary_;
  Ref<TaskSession> session_;
};

}  // namespace millrace
