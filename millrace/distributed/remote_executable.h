#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "millrace/distributed/call_group.h"
#include "millrace/distributed/cluster.h"
#include "millrace/distributed/lease_keeper.h"
#include "millrace/distributed/step_ids.h"
#include "millrace/distributed/wait_watch.h"
#include "millrace/graph/origin.h"
#include "millrace/runtime/executable.h"
#include "millrace/runtime/partition.h"
#include "millrace/runtime/subgraph.h"

namespace millrace {

// A graph cut by task, its parts registered with their workers: each run is one step that all of
// them take part in. Deregisters the parts when it ends. The first error of a task aborts the step
// on the others; of errors that one failure caused on several tasks, the run's is the one of the
// task where it began.
class RemoteExecutable : public Executable {
 public:
  // `keeper` has what a task could not be told: that a step, or the graph, is over. `watch` says
  // when a run has waited for long: then the tasks that have not answered are asked what for, and
  // that is logged. `step_ids` are the master's, `own_task` is the session's. `timer` tells when to
  // ask again a task to which the connection was lost.
  RemoteExecutable(Ref<WorkerCache> workers, std::string own_task, Ref<LeaseKeeper> keeper,
                   Ref<WaitWatch> watch, Ref<StepIds> step_ids, Ref<Timer> timer)
      : workers_(std::move(workers)),
        own_task_(std::move(own_task)),
        keeper_(std::move(keeper)),
        watch_(std::move(watch)),
        step_ids_(std::move(step_ids)),
        timer_(std::move(timer)) {}

  // Building, in this order, before the first run. Adds what runs on `task`; NOT_FOUND for an
  // unknown one.
  Status add_part(const std::string& task, const Subgraph& graph);
  // Finds out what calls can carry; `parts` are those that were added.
  Status find_traffic(const std::vector<Partition>& parts);
  // INTERNAL when a fetch of the signature is in no part.
  Status check_fetches(size_t count) const;
  // Sends `requests`, one for each part. What waits for the answers.
  Ref<CallGroup> register_parts(std::vector<RegisterGraphRequest> requests);

  // The tasks get an id of their own for the step: step.id is unique in this process alone. While
  // tasks have not answered, step.rendezvous says so in waiting().
  void run_async(Ref<Step> step, Step::Done done) const override;
  bool runs_on_caller() const override { return false; }
  Result<Ref<PartialRun>> start_partial(Ref<Step> step, Step::Done done) const override;
  bool straight(Gear) const override { return false; }
  Status run_straight(Step& step) const override;
  bool has_blocking() const override { return false; }
  int64_t bytes() const override;
  std::string to_string() const override;

 private:
  struct Calls;
  // What a part and the session's own task send each other, where that is of this process: the
  // master carries it with its calls, so that neither need ask for it.
  static constexpr size_t kRounds = 2;
  struct Carried {
    explicit Carried(std::string of) : key(std::move(of)) {}
    const std::string key;
    std::atomic<bool> large{false};  // when it was last seen
  };
  struct Traffic {
    std::deque<Carried> to[kRounds], from[kRounds];  // the part; by round, see part_sends.h
    bool known = true;                               // `to` is all that the part receives
    bool only_takes = true;                          // the part sends nothing
    // What its task said when it last ran: see RunGraphResponse.
    std::atomic<bool> prompt{false}, waits_for_peers_only{false};
    // So many runs are still not answered early: it took long when one was, or what it was to
    // receive then was not there in time.
    std::atomic<int> not_early{0};
  };
  struct Part {
    std::string task;
    Ref<WorkerInterface> worker;
    std::string handle;                // empty until registered
    std::vector<int> feeds, fetches;   // positions
    std::string text;                  // the part, a line for each node
    int64_t graph_bytes = 0;           // of the message that registers it
    std::unique_ptr<Traffic> traffic;  // null: of the own task, or where nothing is carried
  };

  ~RemoteExecutable() override;

  // Begins the step of the calls, with `more` parts that are none of theirs, and makes the calls.
  void start(const Ref<Calls>& calls, int more, Step::Done done) const;
  // What one of its tasks waits for, in words, with the user's line where a node of the graph is
  // part of it. `wait` is one of WorkerActivity::Step::waits_for.
  std::string describe_wait(const std::string& task, const std::string& wait) const;

  const Ref<WorkerCache> workers_;
  const std::string own_task_;
  const Ref<LeaseKeeper> keeper_;
  const Ref<WaitWatch> watch_;
  const Ref<StepIds> step_ids_;
  const Ref<Timer> timer_;
  std::vector<Part> parts_;
  // So many runs still begin without waiting for what could be brought: it was not there in time.
  mutable std::atomic<int> without_{0};
  // Whether the part of the session's own task may begin on the thread that runs the step: it waits
  // for others only, and what it does before that was quick, or so many runs ago.
  mutable std::atomic<bool> own_waits_for_peers_only_{false};
  mutable std::atomic<int> own_slow_{0};
  std::unordered_map<std::string, OriginId> origins_;  // by node, where known
};

}  // namespace millrace
