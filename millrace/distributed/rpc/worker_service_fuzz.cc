// What a peer calls of a task, one call after the other: each is a byte for the method, two for the
// length of the fields (little-endian), a byte for the number of parts (0 to 3), two for the length
// of each, and the bytes of all. Calls that name a graph name the one registered last, and those of
// a group that say an even epoch, the one that it was in last. Meanwhile the task sums, in a group
// of two whose other member is whoever joins, and never says anything. Every call is answered, at
// the latest once it is cancelled, and when all are done the task runs nothing and waits for
// nothing.

#include <chrono>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <string_view>

#include "millrace/base/check.h"
#include "millrace/base/file_access.h"
#include "millrace/device/cpu/cpu_device.h"
#include "millrace/distributed/rpc/remote_worker.h"
#include "millrace/distributed/rpc/worker_wire.h"
#include "millrace/distributed/task_service.h"
#include "millrace/distributed/worker.h"
#include "millrace/ops/fuzz_entry.h"
#include "proto/graph.pb.h"
#include "proto/worker_call.pb.h"

namespace millrace {
namespace {

constexpr int kMaxCalls = 16;
constexpr int kMaxNodes = 300;
constexpr auto kPatience = std::chrono::milliseconds(10);
constexpr std::string_view kTask = "/job:worker/replica:0/task:0";
constexpr std::string_view kOther = "/job:worker/replica:0/task:1";

constexpr std::string_view kMethods[] = {
    worker_wire::kGetStatus,   worker_wire::kRegisterGraph,    worker_wire::kDeregisterGraph,
    worker_wire::kRunGraph,    worker_wire::kRecvTensor,       worker_wire::kAbortStep,
    worker_wire::kCleanupStep, worker_wire::kDeleteSession,    worker_wire::kReset,
    "/millrace.Task/Describe", "/millrace.Worker/NoSuchThing", worker_wire::kGiveTensor,
    worker_wire::kJoinGroup,   worker_wire::kRecvChunk,        worker_wire::kEndGroup};

// The other members' task, which hears everything and answers nothing but that it has ended.
class SilentChannel final : public Channel {
 public:
  std::string peer() const override { return "the other member"; }
  void call(std::string_view, Message, Ref<CancellationToken> cancel, CallDone done) override {
    if (!cancel) return done(unavailable("the other member does not answer"), Message());
    struct Call : RefCounted {
      CallDone done;
    };
    const Ref<Call> call = make_ref<Call>();
    call->done = std::move(done);
    const auto give_up = [call, cancel] { call->done(cancel->status(), Message()); };
    if (cancel->on_cancel(give_up) == 0) give_up();
  }
};

struct Task {
  Ref<Worker> worker;
  Ref<CallHandler> handler;
};

const Task& task() {
  static const Task* made = [] {
    std::vector<Ref<Device>> devices =
        make_cpu_devices(DeviceName::parse(kTask).value(), 1).value();
    for (const Ref<Device>& device : devices) device->set_files(FileAccess::only({}).value());
    auto* out = new Task;
    Ref<WorkerCache> peers = make_ref<WorkerCache>();
    MR_CHECK_OK(peers->add(std::string(kOther), make_remote_worker(make_ref<SilentChannel>())));
    out->worker = Worker::create(std::string(kTask), std::move(devices), std::move(peers)).value();
    const ClusterSpec cluster = ClusterSpec::parse("worker|fuzz:1").value();
    out->handler = make_task_service({std::string(kTask), cluster}, out->worker);
    return out;
  }();
  return *made;
}

std::pair<Status, Message> call(std::string_view method, Message message) {
  std::promise<std::pair<Status, Message>> promise;
  auto future = promise.get_future();
  const Ref<CancellationToken> cancel = make_ref<CancellationToken>();
  task().handler->handle(method, std::move(message), cancel,
                         [&promise](Status status, Message answer) {
                           promise.set_value({std::move(status), std::move(answer)});
                         });
  if (future.wait_for(kPatience) != std::future_status::ready) cancel->cancel(cancelled("late"));
  return future.get();
}

// The task's own part in a sum, which ends when it goes.
class OwnSum {
 public:
  OwnSum() {
    // The end of the epoch before may have to be told first.
    for (int i = 0; i < 2 && !ready(); ++i) begin();
  }
  ~OwnSum() {
    cancel_->cancel(cancelled("the input is over"));
    ended_.get();
  }

 private:
  void begin() {
    auto done = std::make_shared<std::promise<void>>();
    ended_ = done->get_future();
    task().worker->collectives()->reduce({.op = "CollectiveReduce",
                                          .group_key = 1,
                                          .group_size = 2,
                                          .instance_key = 7,
                                          .device = str_cat(kTask, "/device:CPU:0"),
                                          .cancel = cancel_},
                                         Tensor::vector({1.0F, 2.0F}), Collectives::Merge::kAdd,
                                         Collectives::Final::kId,
                                         [done](const Result<Tensor>&) { done->set_value(); });
  }
  // Whether it waits.
  bool ready() const {
    return ended_.valid() && ended_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  }

  const Ref<CancellationToken> cancel_ = make_ref<CancellationToken>();
  std::future<void> ended_;
};

// Steps are four of this input, so that all can be ended.
int64_t first_step = 0;
int64_t own_step(int64_t named) { return first_step + (named & 3); }

// The fields with a graph, a step and an epoch that there may be; "" when it would take too long.
std::string prepare(std::string_view method, std::string fields, const std::string& graph,
                    uint64_t epoch) {
  const auto changed = [&](auto request, auto change) {
    if (!request.ParseFromString(fields)) return fields;
    change(request);
    return request.SerializeAsString();
  };
  if (method == worker_wire::kRunGraph) {
    return changed(RunGraphCall(), [&](RunGraphCall& request) {
      request.set_graph_handle(graph);
      request.set_step_id(own_step(request.step_id()));
    });
  }
  if (method == worker_wire::kRecvTensor) {
    return changed(RecvTensorCall(), [&](RecvTensorCall& request) {
      request.set_step_id(own_step(request.step_id()));
    });
  }
  if (method == worker_wire::kGiveTensor) {
    return changed(GiveTensorCall(), [&](GiveTensorCall& request) {
      request.set_step_id(own_step(request.step_id()));
    });
  }
  if (method == worker_wire::kRecvChunk) {
    return changed(RecvChunkCall(), [&](RecvChunkCall& request) {
      if (request.epoch() % 2 == 0) request.set_epoch(epoch);
    });
  }
  if (method == worker_wire::kEndGroup) {
    return changed(EndGroupCall(), [&](EndGroupCall& request) {
      if (request.epoch() % 2 == 0) request.set_epoch(epoch);
    });
  }
  if (method == worker_wire::kAbortStep) {
    return changed(AbortStepCall(), [&](AbortStepCall& request) {
      request.set_step_id(own_step(request.step_id()));
    });
  }
  if (method == worker_wire::kRegisterGraph) {
    return changed(RegisterGraphCall(), [&](RegisterGraphCall& request) {
      tensorflow::GraphDef graph_def;
      request.set_session("fuzz");
      if (!graph_def.ParseFromString(request.graph_def())) return;
      if (graph_def.node_size() > kMaxNodes) request.clear_graph_def();
    });
  }
  return fields;
}

size_t take_number(std::string_view& input, size_t bytes) {
  size_t out = 0;
  for (size_t i = 0; i < bytes && !input.empty(); ++i) {
    out |= static_cast<size_t>(static_cast<uint8_t>(input[0])) << (8 * i);
    input.remove_prefix(1);
  }
  return out;
}

std::string_view take_bytes(std::string_view& input, size_t size) {
  const std::string_view out = input.substr(0, size);
  input.remove_prefix(out.size());
  return out;
}

Message::Part part_of(std::string_view bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  Ref<Buffer> buffer = Buffer::allocate(DType::kUInt8, size, cpu_allocator()).value();
  if (size > 0) std::memcpy(buffer->mutable_data(), bytes.data(), bytes.size());
  return {std::move(buffer), 0, bytes.size()};
}

}  // namespace

void run_input(std::string_view input) {
  first_step += 4;
  std::vector<std::string> graphs = {""};
  uint64_t epoch = 0;
  auto sum = std::make_unique<OwnSum>();
  for (int i = 0; i < kMaxCalls && !input.empty(); ++i) {
    const std::string_view method = kMethods[take_number(input, 1) % std::size(kMethods)];
    const size_t size = take_number(input, 2), parts = take_number(input, 1) % 4;
    Message message;
    message.fields = prepare(method, std::string(take_bytes(input, size)), graphs.back(), epoch);
    for (size_t part = 0; part < parts; ++part) {
      const size_t bytes = take_number(input, 2);
      message.parts.push_back(part_of(take_bytes(input, bytes)));
    }
    const auto [status, answer] = call(method, std::move(message));
    if (method == worker_wire::kRegisterGraph && status.ok()) {
      graphs.push_back(worker_wire::read_register_graph_answer(answer).value());
    }
    if (method == worker_wire::kJoinGroup && status.ok()) {
      epoch = worker_wire::read_join_group_answer(answer).value().epoch;
    }
  }
  sum.reset();
  for (int64_t step = first_step; step < first_step + 4; ++step) {
    call(worker_wire::kCleanupStep, worker_wire::cleanup_step_call(step));
  }
  for (const std::string& graph : graphs) {
    call(worker_wire::kDeregisterGraph, worker_wire::deregister_graph_call(graph));
  }
  MR_CHECK_OK(call(worker_wire::kDeleteSession, worker_wire::delete_session_call("fuzz")).first);
  MR_CHECK_OK(call(worker_wire::kReset, worker_wire::reset_call({})).first);
  MR_CHECK(task().worker->steps().empty());
  MR_CHECK(task().worker->num_graphs() == 0);
  MR_CHECK(task().worker->collectives()->waits().empty());
}

}  // namespace millrace
