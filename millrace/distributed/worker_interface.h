#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/base/cancellation.h"
#include "millrace/base/function.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/distributed/collective/collective_calls.h"
#include "millrace/distributed/session_devices.h"
#include "millrace/kernel/device.h"
#include "millrace/kernel/trace.h"
#include "millrace/kernel/update_log.h"
#include "millrace/kernel/value.h"

namespace millrace {

struct WorkerStatus {
  std::vector<Device::Info> devices;  // at least one; the first one's incarnation is the task's
  int64_t clock_ns = 0;               // monotonic_nanos() there, when it answered
};

struct RegisterGraphRequest {
  // Tells apart the sessions that share the task: names state that belongs to one session.
  std::string session;
  // A GraphDef in which every node is on a device of this task. Feeds are _Arg nodes and fetches
  // are _Retval nodes; their attribute "index" is the position that run_graph uses.
  std::string graph_def;
  // A FunctionDefLibrary: the functions that its kernels call, and those that these call. Kept for
  // the session; another function of the same name is INVALID_ARGUMENT.
  std::string functions;
  // The task's incarnation as the master knows it; 0: not known, not checked.
  uint64_t incarnation = 0;
  // Kernels with this label where an op has one.
  std::string kernel_label;
  // What keep_session() says too: a graph is never without it. 0: the master is of this process.
  int64_t lease_ms = 0;
  // What the session may reach on the task, and whether its state is its own; the same in all its
  // requests.
  SessionScope scope;
  // Message::client of the call.
  std::string client{};
};

struct KeepSessionRequest {
  std::string session;
  // The task may drop what the session has there when it hears nothing of it for so long: 1 ms to
  // an hour.
  int64_t lease_ms = 0;
  uint64_t incarnation = 0;  // as in RegisterGraphRequest
  // What the task could not be told when it was time: steps to clean up, graphs to forget. Unknown
  // ones are fine.
  std::vector<int64_t> over_steps;
  std::vector<std::string> over_graphs;
  std::string client{};  // as in RegisterGraphRequest
};

// What a task has at a moment, for those who watch it.
struct WorkerActivity {
  struct Session {
    std::string name;
    int64_t lease_left_ms = -1;  // -1: it has no end, its master is of the task's process
    int graphs = 0;
  };
  struct Step {
    int64_t id = 0;
    std::string session;  // empty: no run_graph has named the step yet
    // "QueueDequeueV2 \"dequeue\"", "<rendezvous key> from <task>".
    std::vector<std::string> waits_for;
    // Of each of these, where the user's program made the node that waits: "defined at train.py:14
    // x = queue.dequeue()"; empty where that is not known.
    std::vector<std::string> defined;
    int64_t running_ms = -1;  // since its run_graph came; -1: none has
  };
  // What came from a peer, or went there, since the task began: tensors of steps and parts of
  // collective operations from task to task, feeds, fetches and graphs from and to masters (peer
  // "master").
  struct Transfer {
    std::string peer;
    std::string kind;  // "tensor", "collective", "feed", "fetch", "graph"
    int64_t received_bytes = 0;
    int64_t sent_bytes = 0;
  };
  struct Queue {
    std::string device;
    std::string container;
    // Of one that a session has to itself "_<session>/<node>".
    std::string name;
    int64_t size = 0;
    int64_t capacity = -1;  // -1: no limit
    bool closed = false;
  };
  std::vector<Session> sessions;
  std::vector<Step> steps;
  // What follows is told when the question is about all steps. Rates are differences of two
  // answers; clock_ns, of some clock of the task's, says how far they lie apart.
  int64_t clock_ns = 0;
  int64_t up_ms = 0;  // since the task began
  int64_t steps_begun = 0;
  int64_t steps_ended = 0;   // well or not
  int64_t steps_failed = 0;  // of those that ended
  std::vector<Transfer> transfers;
  std::vector<Queue> queues;  // at most 64; none of sessions whose state is their own
};

struct RunGraphRequest {
  std::string graph_handle;
  // The same for all tasks of the step, never used before by any master.
  int64_t step_id = 0;
  std::vector<std::pair<int, Tensor>> feeds;  // by position: every _Arg of the graph, once
  std::vector<int> fetches;                   // positions of _Retval nodes
  // Instead of both: every feed comes by give_tensor(), and every fetch is to be taken by
  // recv_tensor() before the answer, under the keys of partial_keys.h.
  bool in_pieces = false;
  int max_threads = 1 << 20;
  bool trace = false;
  // Steps that are over: what cleanup_step() would say of each. Unknown ones are fine.
  std::vector<int64_t> over_steps;
  // Keys of what the graph sends to other tasks and the caller takes with the answer, instead of a
  // recv_tensor() for each.
  std::vector<std::string> sends;
  // Keys of what the graph receives from other tasks and give_tensor() brings: the task does not
  // ask for it.
  std::vector<std::string> given;
  // What the graph receives from other tasks and comes with the call, by key: as if it had been
  // `given`.
  std::vector<std::pair<std::string, Value>> brought;
  // Keys of what the graph sends to other tasks before it needs all that is `given`. Where there
  // are any, the call is answered as soon as they were sent, with these, and the run goes on; what
  // it comes to, `sends` among it, is the answer to a second call, which `continues`.
  std::vector<std::string> early;
  // The second call: of graph, step, over_steps and what it brings, which is some of what the first
  // has in `given`. No run begins.
  bool continues = false;
  // Whoever calls waits for the end of the step: where the task is of this process, the run may
  // compute before run_graph() returns. Not carried to others.
  bool on_caller = false;
  // Where the run may be tried again, in another step or by another session: what it has changed
  // on the task by then is left out the next time. ABORTED while an earlier try has not ended
  // there.
  UpdateId update;
};

struct RunGraphResponse {
  std::vector<Tensor> fetches;  // in the order asked
  std::vector<Value> sent;      // tensors or dead, in the order of `sends`, or of `early`
  // The graph waits for nothing outside of itself but what the call brought, and ran in next to no
  // time: what it sends might as well come with the answer.
  bool prompt = false;
  // Nothing in the graph waits, but for what it receives from other tasks.
  bool waits_for_peers_only = false;
  // The answer to a call that asked for what is sent early: the run has not ended.
  bool goes_on = false;
  // When traced, in times of the task's clock, as are the moments when the call came and when it
  // was answered.
  std::vector<TraceEvent> events;
  int64_t received_ns = 0;
  int64_t answered_ns = 0;
  // With an error: it began elsewhere (a peer, an abort, a cancelled call), so another task has the
  // one that tells more.
  bool derived = false;
  // With an error: it is the transport's, which lost the task before the answer came. Not said by
  // tasks.
  bool lost = false;
};

struct RecvTensorRequest {
  int64_t step_id = 0;
  std::string key;  // of the rendezvous, see kernel/rendezvous.h
};

// What a master, or a peer, asks of a task. A transport implements it by carrying requests and
// answers; the task's Worker implements it by doing the work. Requests and answers are values,
// bytes and tensors in host memory, nothing else, so they can cross a network; each call is one
// method of TensorFlow's WorkerService, named beside it.
//
// Every call returns without waiting and calls `done` exactly once, from any thread, perhaps before
// it returns. Calls may arrive in another order than they were made. UNAVAILABLE, naming the task,
// is the transport's alone: the task cannot be reached, and what it knew may be lost. Thread-safe.
class WorkerInterface : public RefCounted {
 public:
  using StatusDone = UniqueFunction<void(Status)>;

  // GetStatus.
  virtual void get_status(UniqueFunction<void(Result<WorkerStatus>)> done) = 0;

  // RegisterGraph: makes a graph ready to run any number of times, and answers its handle. ABORTED
  // when the incarnation is another one; INVALID_ARGUMENT or NOT_FOUND for a graph that cannot run
  // here; PERMISSION_DENIED for one that reaches what the session may not.
  virtual void register_graph(RegisterGraphRequest request,
                              UniqueFunction<void(Result<std::string>)> done) = 0;
  // DeregisterGraph: forgets it; steps that run it go on. ABORTED for an unknown handle.
  virtual void deregister_graph(std::string graph_handle, StatusDone done) = 0;

  // RunGraph: runs a graph once as part of a step and answers when nothing of it runs any more.
  // ABORTED for an unknown handle (the task has restarted), for a step that is over, and for a run
  // of another graph in the same step; INVALID_ARGUMENT for feeds or fetches that the graph does
  // not have or that are missing, for a fetch on a branch that was not taken, and for keys in
  // `sends` that nothing was sent under.
  //
  // A second call for the same graph in the same step runs nothing: it is the first one made again,
  // since its connection was lost, and is answered with what the run came to (RunAnswer). So is one
  // that `continues`; ABORTED where the step has no run that was answered early.
  //
  // Once `cancel` (may be null) is cancelled, the run stops and `done` is called soon with an
  // error: the worker's, or, where it does not answer, the reason of the cancellation. Where the
  // reason is UNAVAILABLE, which says that the caller is lost, the run goes on for a while.
  virtual void run_graph(RunGraphRequest request, Ref<CancellationToken> cancel,
                         UniqueFunction<void(Status, RunGraphResponse)> done) = 0;

  // RecvTensor: answers with the value that the step sends under this key (a tensor or dead), once
  // it exists; the step may begin here later. Whatever ends the step before is the answer
  // otherwise. A second call with a key is the first one made again, since its connection was lost;
  // it gets the same value where that is small (StepRendezvous). ABORTED for a key of another
  // incarnation, a value that was handed out and not kept, and a step that is over;
  // INVALID_ARGUMENT for a malformed key or one whose sender is not of this task. `cancel` (may be
  // null) as in run_graph.
  virtual void recv_tensor(RecvTensorRequest request, Ref<CancellationToken> cancel,
                           UniqueFunction<void(Status, Value)> done) = 0;

  // Brings what a peer has sent in a step, under one of the keys that the step's run_graph has in
  // `given`, or what is fed to a run in pieces; before or after the run_graph. A second one with a
  // key is the first one made again, since its connection was lost: it changes nothing. ABORTED for
  // a step that is over.
  virtual void give_tensor(int64_t step_id, std::string key, Value value, StatusDone done) = 0;

  // Ends what runs and waits in a step with `reason` (an error); a run_graph or recv_tensor that
  // arrives later fails with it at once. TensorFlow cancels its RunGraph calls instead.
  virtual void abort_step(int64_t step_id, Status reason, StatusDone done) = 0;
  // CleanupGraph: forgets a step, after its run_graph has answered. What is left of it is dropped.
  virtual void cleanup_step(int64_t step_id, StatusDone done) = 0;

  // True where the task must be told that the session's master lives: where the two are of one
  // process, neither outlives the other, and sessions have no leases.
  virtual bool needs_lease() const { return true; }
  // Says that a session's master lives. A task that hears neither this nor a register_graph of the
  // session for as long as its lease ends the session's steps and drops its graphs and all else
  // that delete_session() drops. From then on whatever names the session is ABORTED, as is another
  // incarnation; INVALID_ARGUMENT for what is no lease.
  virtual void keep_session(KeepSessionRequest request, StatusDone done) = 0;
  // DeleteWorkerSession: drops what the session of this name has: its graphs, its functions, and
  // what it had to itself, such as queues without a shared name, once none of its steps runs. Steps
  // that run still are CANCELLED. OK when there is nothing.
  virtual void delete_session(std::string session, StatusDone done) = 0;

  // What the task has, or what it has of one step; 0: of all.
  virtual void get_activity(int64_t step_id, UniqueFunction<void(Result<WorkerActivity>)> done) = 0;

  // CleanupAll: drops the resources in these containers; none named: in the default one, which the
  // name of the task's job stands for too.
  virtual void reset(std::vector<std::string> containers, StatusDone done) = 0;

  // What members of a group of collective operations ask; docs/collectives.md says when. `cancel`
  // (may be null) as in recv_tensor. UNIMPLEMENTED where a worker has none.
  //
  // Answers when the group has formed. INVALID_ARGUMENT for a task that does not lead groups, and
  // to all who wait when they do not agree on the group's size. TensorFlow's CompleteGroup.
  virtual void join_group(JoinGroupRequest request, Ref<CancellationToken> cancel,
                          UniqueFunction<void(Result<GroupView>)> done);
  // Answers when the value exists. ABORTED for an epoch that is over, or that the task is not in;
  // INVALID_ARGUMENT where asker and asked do not do the same. TensorFlow's RecvBuf.
  virtual void recv_chunk(RecvChunkRequest request, Ref<CancellationToken> cancel,
                          UniqueFunction<void(Result<Tensor>)> done);
  // Ends what the task has in an epoch. OK when it has nothing.
  virtual void end_group(EndGroupRequest request, StatusDone done);
};

inline void WorkerInterface::join_group(JoinGroupRequest request, Ref<CancellationToken>,
                                        UniqueFunction<void(Result<GroupView>)> done) {
  done(unimplemented("group ", request.group_key, ": this worker has no collective operations"));
}

inline void WorkerInterface::recv_chunk(RecvChunkRequest request, Ref<CancellationToken>,
                                        UniqueFunction<void(Result<Tensor>)> done) {
  done(unimplemented("group ", request.group_key, ": this worker has no collective operations"));
}

inline void WorkerInterface::end_group(EndGroupRequest request, StatusDone done) {
  done(unimplemented("group ", request.group_key, ": this worker has no collective operations"));
}

}  // namespace millrace
