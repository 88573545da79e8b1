#pragma once

#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/distributed/remote_executable.h"

namespace millrace {

// The calls to the tasks of one step: its parts.
//
// A part is called once or twice. What the session's own task sends it in round 0 comes with the
// call; what it sends back comes with the answer, where it is one that waits for nothing else.
// Where it also receives what the own task makes of its answer, it is called twice: the first call
// is answered once it has sent what it sends in round 0, the second brings what it receives in
// round 1. Everything else is asked for by who receives it.
struct RemoteExecutable::Calls : Waiting {
  Calls(const RemoteExecutable* executable, Ref<Step> run, bool partial);

  // Makes the first calls. A part that cannot be called has ended.
  void start_all();
  // Ends the run, for all tasks. `status_derived`: another task has the error that tells more.
  void fail(const Status& status, bool status_derived);
  // All parts have ended; the step's error is the one that tells most.
  void end();
  // The tasks that have not answered say what they wait for; those that do not say so are named.
  void tell(int64_t waited_ms) override;

  Ref<const RemoteExecutable> owner;
  const Ref<Step> step;
  const int64_t step_id;  // as the tasks know it
  const bool in_pieces;   // feeds and fetches go by calls of their own
  const Ref<CancellationToken> token = make_ref<CancellationToken>();
  uint64_t wait = 0;    // of the watch
  uint64_t ticket = 0;  // of step->cancel

 private:
  // Of what the session's own task sends to a part in one round.
  struct Bringing {
    std::vector<Carried*> what;
    std::vector<Value> values;  // empty where it did not come
    size_t missing = 0;
    bool over = false;  // what comes from now on does not come with a call
  };
  // What is carried to and from a part in this run.
  struct Load {
    Bringing first, second;
    std::vector<Carried*> early, last;  // with the answer of the first call of two, and of the last
    bool twice = false;
    int64_t between_since_ns = -1;    // since when the first of two calls has been answered
    std::vector<int64_t> over_steps;  // what its task was told to clean up
    int64_t sent_ns = 0;              // when its task was called, with a trace
  };

  // What the part and the own task send each other by calls in this run.
  static void choose(Traffic& traffic, bool without, Load& load);
  std::string wait_key(size_t i) const;
  Ref<WorkerInterface> own_worker() const;
  // Takes what part `i` needs from the session's own task, and calls the part then.
  void bring_and_start(size_t i, const Ref<WorkerInterface>& own);
  void start(size_t i);
  void start_own(size_t i);
  RunGraphRequest first_request(size_t i);
  void answered_early(size_t i, Status status, RunGraphResponse response);
  void bring_second(size_t i);
  void second_came(size_t i, size_t k, const Status& status, Value value);
  void call_again(size_t i);
  // What is not there in time is waited for no longer: it may itself wait for who is not called.
  void look_later(int64_t delay_ns) MR_REQUIRES(mu_);
  void stop_waiting_for_late();
  void part_ended(size_t i, Status status, RunGraphResponse response);
  // Gives what part `i` sent to the session's own task.
  Status hand_over(size_t i, const std::vector<Carried*>& what, std::vector<Value>& sent);
  // Times of another process's clock become times of ours.
  void add_trace(size_t i, RunGraphResponse& response);

  Mutex mu_;
  Status error_ MR_GUARDED_BY(mu_);
  bool derived_ MR_GUARDED_BY(mu_) = false;
  std::vector<bool> answered_ MR_GUARDED_BY(mu_);
  uint64_t looking_ MR_GUARDED_BY(mu_) = 0;  // of the timer; 0: nobody looks later
  // By part. Values, and what says how many are missing, belong to mu_.
  std::vector<Load> loads_;
  const Ref<CancellationToken> bring_token_ = CancellationToken::make_child(token);
};

}  // namespace millrace
