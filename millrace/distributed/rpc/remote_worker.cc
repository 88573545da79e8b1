#include "millrace/distributed/rpc/remote_worker.h"

#include "millrace/distributed/patience.h"
#include "millrace/distributed/rpc/worker_wire.h"

namespace millrace {
namespace {

namespace wire = worker_wire;

class RemoteWorker final : public WorkerInterface {
 public:
  explicit RemoteWorker(Ref<Channel> channel) : channel_(std::move(channel)) {}

  void get_status(UniqueFunction<void(Result<WorkerStatus>)> done) override {
    call(wire::kGetStatus, Message(), wire::read_get_status_answer, std::move(done));
  }
  void register_graph(RegisterGraphRequest request,
                      UniqueFunction<void(Result<std::string>)> done) override {
    call(wire::kRegisterGraph, wire::register_graph_call(request), wire::read_register_graph_answer,
         std::move(done));
  }
  void deregister_graph(std::string graph_handle, StatusDone done) override {
    call(wire::kDeregisterGraph, wire::deregister_graph_call(graph_handle), std::move(done));
  }
  void run_graph(RunGraphRequest request, Ref<CancellationToken> cancel,
                 UniqueFunction<void(Status, RunGraphResponse)> done) override {
    Result<Message> message = wire::run_graph_call(request);
    if (!message.ok()) return done(message.status(), RunGraphResponse());
    channel_->call(wire::kRunGraph, *std::move(message), cancel,
                   [cancel, done = std::move(done)](Status status, const Message& answer) mutable {
                     RunGraphResponse response;
                     if (status.ok()) {
                       status = wire::read_run_graph_answer(answer, response);
                     } else {
                       // The channel's error: of a lost peer, or of a call that was given up.
                       response.derived = cancel && cancel->cancelled();
                       response.lost = !response.derived && status.code() == Code::kUnavailable &&
                                       !is_silent_peer(status);
                     }
                     done(std::move(status), std::move(response));
                   });
  }
  void recv_tensor(RecvTensorRequest request, Ref<CancellationToken> cancel,
                   UniqueFunction<void(Status, Value)> done) override {
    channel_->call(wire::kRecvTensor, wire::recv_tensor_call(request), std::move(cancel),
                   [done = std::move(done)](Status status, const Message& answer) mutable {
                     if (!status.ok()) return done(std::move(status), Value());
                     Result<Value> value = wire::read_recv_tensor_answer(answer);
                     if (!value.ok()) return done(value.status(), Value());
                     done(ok_status(), *std::move(value));
                   });
  }
  void give_tensor(int64_t step_id, std::string key, Value value, StatusDone done) override {
    Result<Message> message = wire::give_tensor_call({step_id, std::move(key), std::move(value)});
    if (!message.ok()) return done(message.status());
    call(wire::kGiveTensor, *std::move(message), std::move(done));
  }
  void abort_step(int64_t step_id, Status reason, StatusDone done) override {
    call(wire::kAbortStep, wire::abort_step_call({step_id, std::move(reason)}), std::move(done));
  }
  void cleanup_step(int64_t step_id, StatusDone done) override {
    call(wire::kCleanupStep, wire::cleanup_step_call(step_id), std::move(done));
  }
  void keep_session(KeepSessionRequest request, StatusDone done) override {
    call(wire::kKeepSession, wire::keep_session_call(request), std::move(done));
  }
  void get_activity(int64_t step_id, UniqueFunction<void(Result<WorkerActivity>)> done) override {
    call(wire::kGetActivity, wire::get_activity_call(step_id), wire::read_get_activity_answer,
         std::move(done));
  }
  void delete_session(std::string session, StatusDone done) override {
    call(wire::kDeleteSession, wire::delete_session_call(session), std::move(done));
  }
  void reset(std::vector<std::string> containers, StatusDone done) override {
    call(wire::kReset, wire::reset_call(containers), std::move(done));
  }
  void join_group(JoinGroupRequest request, Ref<CancellationToken> cancel,
                  UniqueFunction<void(Result<GroupView>)> done) override {
    call(wire::kJoinGroup, wire::join_group_call(request), wire::read_join_group_answer,
         std::move(done), std::move(cancel));
  }
  void recv_chunk(RecvChunkRequest request, Ref<CancellationToken> cancel,
                  UniqueFunction<void(Result<Tensor>)> done) override {
    call(wire::kRecvChunk, wire::recv_chunk_call(request), wire::read_recv_chunk_answer,
         std::move(done), std::move(cancel));
  }
  void end_group(EndGroupRequest request, StatusDone done) override {
    call(wire::kEndGroup, wire::end_group_call(request), std::move(done));
  }

 private:
  // A call whose answer says nothing but that all went well.
  void call(std::string_view method, Message request, StatusDone done) {
    channel_->call(method, std::move(request), nullptr,
                   [done = std::move(done)](Status status, const Message&) mutable {
                     done(std::move(status));
                   });
  }
  template <class Answer>
  void call(std::string_view method, Message request, Result<Answer> (*read)(const Message&),
            UniqueFunction<void(Result<Answer>)> done, Ref<CancellationToken> cancel = nullptr) {
    channel_->call(method, std::move(request), std::move(cancel),
                   [read, done = std::move(done)](Status status, const Message& answer) mutable {
                     if (!status.ok()) return done(std::move(status));
                     done(read(answer));
                   });
  }

  const Ref<Channel> channel_;
};

class WorkerService final : public CallHandler {
 public:
  explicit WorkerService(Ref<WorkerInterface> worker) : worker_(std::move(worker)) {}

  void handle(std::string_view method, Message request, Ref<CancellationToken> cancel,
              CallDone done) override {
    if (method == wire::kRunGraph) return run_graph(request, std::move(cancel), std::move(done));
    if (method == wire::kRecvTensor) {
      return recv_tensor(request, std::move(cancel), std::move(done));
    }
    if (method == wire::kGiveTensor) {
      Result<wire::GiveTensor> give = wire::read_give_tensor_call(request);
      if (!give.ok()) return done(give.status(), Message());
      return worker_->give_tensor(give->step_id, std::move(give->key), std::move(give->value),
                                  answer_nothing(std::move(done)));
    }
    if (method == wire::kCleanupStep) {
      const Result<int64_t> step = wire::read_cleanup_step_call(request);
      if (!step.ok()) return done(step.status(), Message());
      return worker_->cleanup_step(*step, answer_nothing(std::move(done)));
    }
    if (method == wire::kAbortStep) {
      Result<wire::AbortStep> abort = wire::read_abort_step_call(request);
      if (!abort.ok()) return done(abort.status(), Message());
      return worker_->abort_step(abort->step_id, std::move(abort->reason),
                                 answer_nothing(std::move(done)));
    }
    if (method == wire::kGetStatus) {
      return worker_->get_status([done = std::move(done)](Result<WorkerStatus> status) mutable {
        if (!status.ok()) return done(status.status(), Message());
        done(ok_status(), wire::get_status_answer(*status));
      });
    }
    if (method == wire::kRegisterGraph) {
      Result<RegisterGraphRequest> graph = wire::read_register_graph_call(request);
      if (!graph.ok()) return done(graph.status(), Message());
      graph->client = std::move(request.client);
      return worker_->register_graph(*std::move(graph),
                                     [done = std::move(done)](Result<std::string> handle) mutable {
                                       if (!handle.ok()) return done(handle.status(), Message());
                                       done(ok_status(), wire::register_graph_answer(*handle));
                                     });
    }
    if (method == wire::kDeregisterGraph) {
      Result<std::string> handle = wire::read_deregister_graph_call(request);
      if (!handle.ok()) return done(handle.status(), Message());
      return worker_->deregister_graph(*std::move(handle), answer_nothing(std::move(done)));
    }
    if (method == wire::kKeepSession) {
      Result<KeepSessionRequest> keep = wire::read_keep_session_call(request);
      if (!keep.ok()) return done(keep.status(), Message());
      keep->client = std::move(request.client);
      return worker_->keep_session(*std::move(keep), answer_nothing(std::move(done)));
    }
    if (method == wire::kGetActivity) {
      const Result<int64_t> step = wire::read_get_activity_call(request);
      if (!step.ok()) return done(step.status(), Message());
      return worker_->get_activity(
          *step, [done = std::move(done)](Result<WorkerActivity> activity) mutable {
            if (!activity.ok()) return done(activity.status(), Message());
            done(ok_status(), wire::get_activity_answer(*activity));
          });
    }
    if (method == wire::kDeleteSession) {
      Result<std::string> session = wire::read_delete_session_call(request);
      if (!session.ok()) return done(session.status(), Message());
      return worker_->delete_session(*std::move(session), answer_nothing(std::move(done)));
    }
    if (method == wire::kReset) {
      Result<std::vector<std::string>> containers = wire::read_reset_call(request);
      if (!containers.ok()) return done(containers.status(), Message());
      return worker_->reset(*std::move(containers), answer_nothing(std::move(done)));
    }
    if (method == wire::kRecvChunk) {
      return recv_chunk(request, std::move(cancel), std::move(done));
    }
    if (method == wire::kJoinGroup) {
      return join_group(request, std::move(cancel), std::move(done));
    }
    if (method == wire::kEndGroup) {
      Result<EndGroupRequest> end = wire::read_end_group_call(request);
      if (!end.ok()) return done(end.status(), Message());
      return worker_->end_group(*std::move(end), answer_nothing(std::move(done)));
    }
    done(unimplemented("a worker has no method ", method), Message());
  }

 private:
  static WorkerInterface::StatusDone answer_nothing(CallDone done) {
    return [done = std::move(done)](Status status) mutable { done(std::move(status), Message()); };
  }

  void run_graph(const Message& request, Ref<CancellationToken> cancel, CallDone done) {
    Result<RunGraphRequest> run = wire::read_run_graph_call(request);
    if (!run.ok()) return done(run.status(), Message());
    worker_->run_graph(
        *std::move(run), std::move(cancel),
        [done = std::move(done)](const Status& status, const RunGraphResponse& response) mutable {
          done(ok_status(), wire::run_graph_answer(status, response));
        });
  }
  void recv_tensor(const Message& request, Ref<CancellationToken> cancel, CallDone done) {
    Result<RecvTensorRequest> recv = wire::read_recv_tensor_call(request);
    if (!recv.ok()) return done(recv.status(), Message());
    worker_->recv_tensor(*std::move(recv), std::move(cancel),
                         [done = std::move(done)](Status status, const Value& value) mutable {
                           if (!status.ok()) return done(std::move(status), Message());
                           Result<Message> answer = wire::recv_tensor_answer(value);
                           if (!answer.ok()) return done(answer.status(), Message());
                           done(ok_status(), *std::move(answer));
                         });
  }

  void join_group(const Message& request, Ref<CancellationToken> cancel, CallDone done) {
    Result<JoinGroupRequest> join = wire::read_join_group_call(request);
    if (!join.ok()) return done(join.status(), Message());
    worker_->join_group(*std::move(join), std::move(cancel),
                        [done = std::move(done)](Result<GroupView> view) mutable {
                          if (!view.ok()) return done(view.status(), Message());
                          done(ok_status(), wire::join_group_answer(*view));
                        });
  }
  void recv_chunk(const Message& request, Ref<CancellationToken> cancel, CallDone done) {
    Result<RecvChunkRequest> recv = wire::read_recv_chunk_call(request);
    if (!recv.ok()) return done(recv.status(), Message());
    worker_->recv_chunk(*std::move(recv), std::move(cancel),
                        [done = std::move(done)](Result<Tensor> chunk) mutable {
                          if (!chunk.ok()) return done(chunk.status(), Message());
                          Result<Message> answer = wire::recv_chunk_answer(*chunk);
                          if (!answer.ok()) return done(answer.status(), Message());
                          done(ok_status(), *std::move(answer));
                        });
  }

  const Ref<WorkerInterface> worker_;
};

}  // namespace

Ref<WorkerInterface> make_remote_worker(Ref<Channel> channel) {
  return make_ref<RemoteWorker>(std::move(channel));
}

Ref<CallHandler> make_worker_service(Ref<WorkerInterface> worker) {
  return make_ref<WorkerService>(std::move(worker));
}

}  // namespace millrace
