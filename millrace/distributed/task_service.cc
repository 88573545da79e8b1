#include "millrace/distributed/task_service.h"

#include "millrace/base/mutex.h"
#include "millrace/distributed/call_group.h"
#include "millrace/distributed/rpc/remote_worker.h"
#include "millrace/distributed/task_alias.h"
#include "proto/worker_call.pb.h"

namespace millrace {
namespace {

constexpr std::string_view kDescribe = "/millrace.Task/Describe";
constexpr std::string_view kStop = "/millrace.Task/Stop";

// The answer to who asks for what only those get who may do everything.
Status denied(std::string_view what) {
  return permission_denied(what,
                           " is for those who may do everything on this server: its own "
                           "user, and who has the cluster's token or certificates");
}

}  // namespace

Message to_message(const TaskDescription& description) {
  DescribeTaskAnswer fields;
  fields.set_task(description.task);
  for (const auto& [job, tasks] : description.cluster.jobs()) {
    for (const auto& [number, address] : tasks) {
      DescribeTaskAnswer::Task& task = *fields.add_cluster();
      task.set_job(job);
      task.set_number(number);
      task.set_address(address);
    }
  }
  Message message;
  fields.AppendToString(&message.fields);
  return message;
}

Result<TaskDescription> read_task_description(const Message& message) {
  DescribeTaskAnswer fields;
  if (!fields.ParseFromString(message.fields)) {
    return invalid_argument("expected the description of a task, got ", message.fields.size(),
                            " bytes that are none");
  }
  TaskDescription description;
  description.task = fields.task();
  for (const DescribeTaskAnswer::Task& task : fields.cluster()) {
    MR_TRY(description.cluster.add(task.job(), task.number(), task.address()));
  }
  MR_TRY(description.cluster.address(description.task).status());
  return description;
}

namespace {

class TaskService final : public CallHandler {
 public:
  TaskService(const TaskDescription& description, Ref<WorkerInterface> worker,
              std::function<void()> stop, Ref<CallHandler> aliases)
      : description_(to_message(description)),
        worker_(make_worker_service(std::move(worker))),
        stop_(std::move(stop)),
        aliases_(std::move(aliases)) {}

  void handle(std::string_view method, Message request, Ref<CancellationToken> cancel,
              CallDone done) override {
    if (method == kDescribe) return done(ok_status(), description_);
    if (method == kStop) {
      if (!stop_) return done(denied("Stop"), Message());
      done(ok_status(), Message());
      return stop_();
    }
    if (method.starts_with(kAliasPrefix)) {
      if (!aliases_) return done(denied("a cluster that a session brings"), Message());
      return aliases_->handle(method, std::move(request), std::move(cancel), std::move(done));
    }
    worker_->handle(method, std::move(request), std::move(cancel), std::move(done));
  }

 private:
  const Message description_;
  const Ref<CallHandler> worker_;
  const std::function<void()> stop_;
  const Ref<CallHandler> aliases_;  // null: not for who calls here
};

}  // namespace

Ref<CallHandler> make_task_service(TaskDescription description, Ref<WorkerInterface> worker,
                                   std::function<void()> stop, Ref<CallHandler> aliases) {
  return make_ref<TaskService>(description, std::move(worker), std::move(stop), std::move(aliases));
}

void stop_task(Channel& channel, UniqueFunction<void(Status)> done) {
  channel.call(
      kStop, Message(), nullptr,
      [done = std::move(done)](Status status, const Message&) mutable { done(std::move(status)); });
}

Result<TaskDescription> ask_task(Channel& channel, int64_t timeout_ms) {
  struct Answer : RefCounted {
    Mutex mu;
    Message message MR_GUARDED_BY(mu);
  };
  const Ref<Answer> answer = make_ref<Answer>();
  const Ref<CallGroup> group = make_ref<CallGroup>("describe");
  const Ref<CancellationToken> cancel = make_ref<CancellationToken>();
  const std::string peer = channel.peer();
  group->expect(peer);
  channel.call(kDescribe, Message(), cancel, [=](Status status, Message message) {
    {
      MutexLock lock(answer->mu);
      answer->message = std::move(message);
    }
    group->answer(peer, std::move(status));
  });
  if (Status status = group->wait(timeout_ms); !status.ok()) {
    cancel->cancel(status);
    return status;
  }
  MutexLock lock(answer->mu);
  return read_task_description(answer->message);
}

}  // namespace millrace
