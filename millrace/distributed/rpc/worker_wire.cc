#include "millrace/distributed/rpc/worker_wire.h"

#include <algorithm>

#include "millrace/tensor/tensor_proto.h"
#include "proto/tensor.pb.h"
#include "proto/worker_call.pb.h"

namespace millrace::worker_wire {
namespace {

Message to_message(const google::protobuf::MessageLite& fields) {
  Message message;
  fields.AppendToString(&message.fields);
  return message;
}

template <class Fields>
Result<Fields> parse(const Message& message) {
  Fields fields;
  if (fields.ParseFromString(message.fields)) return fields;
  return invalid_argument("expected a ", fields.GetTypeName(), ", got ", message.fields.size(),
                          " bytes that are none");
}

void put_status(const Status& status, WireStatus& out) {
  out.set_code(static_cast<int32_t>(status.code()));
  out.set_message(std::string(status.message()));
}

Status get_status(const WireStatus& in) {
  if (in.code() == 0) return ok_status();
  const bool known = in.code() > 0 && in.code() <= static_cast<int32_t>(Code::kUnauthenticated);
  return Status(known ? static_cast<Code>(in.code()) : Code::kUnknown, in.message());
}

Status put_tensor(const Tensor& tensor, WireTensor& out, Message& message) {
  if (!is_plain(tensor.dtype())) {
    tensorflow::TensorProto proto;
    MR_TRY(tensor_to_proto(tensor, proto));
    proto.SerializeToString(out.mutable_content());
    return ok_status();
  }
  out.set_dtype(static_cast<int32_t>(tensor.dtype()));
  for (const int64_t dim : tensor.shape().dims()) out.add_dim(dim);
  out.set_in_part(true);
  message.parts.push_back({tensor.buffer(), tensor.offset(), tensor.bytes()});
  return ok_status();
}

Status put_value(const Value& value, RecvTensorAnswer& out, Message& message) {
  if (value.dead()) {
    out.set_dead(true);
    return ok_status();
  }
  if (value.state == Value::State::kTensor) {
    return put_tensor(value.tensor, *out.mutable_value(), message);
  }
  return unimplemented("a reference to a variable does not leave its task");
}

// Takes the parts of a message one after another.
class TensorReader {
 public:
  explicit TensorReader(const Message& message) : parts_(message.parts) {}

  Result<Tensor> next(const WireTensor& in) {
    if (!in.in_part()) {
      tensorflow::TensorProto proto;
      if (!proto.ParseFromString(in.content())) {
        return invalid_argument("expected a TensorProto, got ", in.content().size(),
                                " bytes that are none");
      }
      return tensor_from_proto(proto);
    }
    const auto dtype = static_cast<DType>(in.dtype());
    if (!is_valid(dtype) || !is_plain(dtype)) {
      return invalid_argument("expected a type of plain elements, got number ", in.dtype());
    }
    MR_TRY_ASSIGN(const Shape shape, Shape::make({in.dim().data(), size_t(in.dim_size())}));
    if (next_ == parts_.size()) {
      return invalid_argument("the elements of a tensor of shape ", shape, " are missing");
    }
    const Message::Part& part = parts_[next_++];
    size_t bytes;
    if (__builtin_mul_overflow(static_cast<size_t>(shape.num_elements()), dtype_size(dtype),
                               &bytes) ||
        bytes != part.size) {
      return invalid_argument("expected the elements of ", dtype, " ", shape, ", got ", part.size,
                              " bytes");
    }
    if (dtype == DType::kBool) {
      const auto* begin = static_cast<const unsigned char*>(part.data());
      const auto* wrong = std::find_if(begin, begin + bytes, [](auto byte) { return byte > 1; });
      if (wrong != begin + bytes) {
        return invalid_argument("expected bytes 0 and 1 in a bool tensor, got ", int{*wrong});
      }
    }
    return Tensor(dtype, shape, part.buffer, part.offset);
  }
  Result<Value> value(const RecvTensorAnswer& in) {
    Value value;
    if (in.dead()) {
      value.set_dead();
      return value;
    }
    MR_TRY_ASSIGN(Tensor tensor, next(in.value()));
    return Value::of(std::move(tensor));
  }

 private:
  const std::vector<Message::Part>& parts_;
  size_t next_ = 0;
};

void put_counters(const WorkerActivity& activity, GetActivityAnswer& fields) {
  fields.set_clock_ns(activity.clock_ns);
  fields.set_up_ms(activity.up_ms);
  fields.set_steps_begun(activity.steps_begun);
  fields.set_steps_ended(activity.steps_ended);
  fields.set_steps_failed(activity.steps_failed);
  for (const WorkerActivity::Transfer& in : activity.transfers) {
    GetActivityAnswer::Transfer& out = *fields.add_transfer();
    out.set_peer(in.peer);
    out.set_kind(in.kind);
    out.set_received_bytes(in.received_bytes);
    out.set_sent_bytes(in.sent_bytes);
  }
  for (const WorkerActivity::Queue& in : activity.queues) {
    GetActivityAnswer::Queue& out = *fields.add_queue();
    out.set_device(in.device);
    out.set_container(in.container);
    out.set_name(in.name);
    out.set_size(in.size);
    out.set_capacity(in.capacity);
    out.set_closed(in.closed);
  }
}

void get_counters(const GetActivityAnswer& fields, WorkerActivity& activity) {
  activity.clock_ns = fields.clock_ns();
  activity.up_ms = fields.up_ms();
  activity.steps_begun = fields.steps_begun();
  activity.steps_ended = fields.steps_ended();
  activity.steps_failed = fields.steps_failed();
  for (const GetActivityAnswer::Transfer& in : fields.transfer()) {
    activity.transfers.push_back({in.peer(), in.kind(), in.received_bytes(), in.sent_bytes()});
  }
  for (const GetActivityAnswer::Queue& in : fields.queue()) {
    activity.queues.push_back(
        {in.device(), in.container(), in.name(), in.size(), in.capacity(), in.closed()});
  }
}

}  // namespace

Message get_status_answer(const WorkerStatus& status) {
  GetStatusAnswer fields;
  for (const Device::Info& info : status.devices) {
    GetStatusAnswer::Device& device = *fields.add_device();
    device.set_own_memory(info.own_memory);
    tensorflow::DeviceAttributes& out = *device.mutable_attributes();
    out.set_name(info.name.to_string());
    out.set_device_type(std::string(device_type(info.kind)));
    out.set_memory_limit(info.memory_limit);
    out.set_incarnation(info.incarnation);
    out.set_physical_device_desc(info.description);
  }
  fields.set_clock_ns(status.clock_ns);
  return to_message(fields);
}

Result<WorkerStatus> read_get_status_answer(const Message& message) {
  MR_TRY_ASSIGN(const GetStatusAnswer fields, parse<GetStatusAnswer>(message));
  WorkerStatus status;
  for (const GetStatusAnswer::Device& device : fields.device()) {
    const tensorflow::DeviceAttributes& in = device.attributes();
    Device::Info info;
    MR_TRY_ASSIGN(info.name, DeviceName::parse(in.name()));
    if (!info.name.complete()) {
      return invalid_argument("expected the full name of a device, got ", in.name());
    }
    constexpr DeviceKind kKinds[] = {DeviceKind::kCpu, DeviceKind::kCuda, DeviceKind::kNull,
                                     DeviceKind::kSimulated};
    const DeviceKind* kind = std::find_if(
        std::begin(kKinds), std::end(kKinds),
        [&](DeviceKind candidate) { return device_type(candidate) == in.device_type(); });
    if (kind == std::end(kKinds)) {
      return invalid_argument("expected a device of a known type, got ", in.device_type());
    }
    info.kind = *kind;
    info.own_memory = device.own_memory();
    info.memory_limit = in.memory_limit();
    info.incarnation = in.incarnation();
    info.description = in.physical_device_desc();
    status.devices.push_back(std::move(info));
  }
  status.clock_ns = fields.clock_ns();
  if (status.devices.empty()) return invalid_argument("expected at least one device, got none");
  return status;
}

Message register_graph_call(const RegisterGraphRequest& request) {
  RegisterGraphCall fields;
  fields.set_session(request.session);
  fields.set_graph_def(request.graph_def);
  fields.set_incarnation(request.incarnation);
  fields.set_kernel_label(request.kernel_label);
  fields.set_lease_ms(request.lease_ms);
  fields.set_functions(request.functions);
  fields.set_refused(request.scope.rights.refused_bits());
  fields.set_isolate_state(request.scope.isolated);
  return to_message(fields);
}

Result<RegisterGraphRequest> read_register_graph_call(const Message& message) {
  MR_TRY_ASSIGN(RegisterGraphCall fields, parse<RegisterGraphCall>(message));
  RegisterGraphRequest request;
  request.session = std::move(*fields.mutable_session());
  request.graph_def = std::move(*fields.mutable_graph_def());
  request.incarnation = fields.incarnation();
  request.kernel_label = std::move(*fields.mutable_kernel_label());
  request.lease_ms = fields.lease_ms();
  request.functions = std::move(*fields.mutable_functions());
  request.scope.rights = GraphRights::from_refused_bits(fields.refused());
  request.scope.isolated = fields.isolate_state();
  return request;
}

Message register_graph_answer(const std::string& handle) {
  RegisterGraphAnswer fields;
  fields.set_graph_handle(handle);
  return to_message(fields);
}

Result<std::string> read_register_graph_answer(const Message& message) {
  MR_TRY_ASSIGN(const auto fields, parse<RegisterGraphAnswer>(message));
  return fields.graph_handle();
}

Result<Message> run_graph_call(const RunGraphRequest& request) {
  RunGraphCall fields;
  Message message;
  fields.set_graph_handle(request.graph_handle);
  fields.set_step_id(request.step_id);
  for (const auto& [position, value] : request.feeds) {
    RunGraphCall::Feed& feed = *fields.add_feed();
    feed.set_position(position);
    MR_TRY(put_tensor(value, *feed.mutable_value(), message));
  }
  fields.mutable_fetch()->Add(request.fetches.begin(), request.fetches.end());
  fields.set_max_threads(request.max_threads);
  fields.set_trace(request.trace);
  for (const int64_t step : request.over_steps) fields.add_over_step(static_cast<uint64_t>(step));
  for (const std::string& key : request.sends) fields.add_send(key);
  for (const std::string& key : request.given) fields.add_given(key);
  fields.set_update_stream(request.update.stream);
  fields.set_update_number(request.update.number);
  fields.set_in_pieces(request.in_pieces);
  for (const auto& [key, value] : request.brought) {
    RunGraphCall::Brought& brought = *fields.add_brought();
    brought.set_key(key);
    MR_TRY(put_value(value, *brought.mutable_value(), message));
  }
  fields.AppendToString(&message.fields);
  return message;
}

Result<RunGraphRequest> read_run_graph_call(const Message& message) {
  MR_TRY_ASSIGN(RunGraphCall fields, parse<RunGraphCall>(message));
  RunGraphRequest request;
  request.graph_handle = std::move(*fields.mutable_graph_handle());
  request.step_id = fields.step_id();
  TensorReader tensors(message);
  for (const RunGraphCall::Feed& feed : fields.feed()) {
    MR_TRY_ASSIGN(Tensor value, tensors.next(feed.value()));
    request.feeds.emplace_back(feed.position(), std::move(value));
  }
  request.fetches.assign(fields.fetch().begin(), fields.fetch().end());
  request.max_threads = fields.max_threads();
  request.trace = fields.trace();
  request.over_steps.assign(fields.over_step().begin(), fields.over_step().end());
  request.sends.assign(fields.send().begin(), fields.send().end());
  request.given.assign(fields.given().begin(), fields.given().end());
  request.update = {fields.update_stream(), fields.update_number()};
  request.in_pieces = fields.in_pieces();
  for (RunGraphCall::Brought& brought : *fields.mutable_brought()) {
    MR_TRY_ASSIGN(Value value, tensors.value(brought.value()));
    request.brought.emplace_back(std::move(*brought.mutable_key()), std::move(value));
  }
  return request;
}

Message run_graph_answer(const Status& status, const RunGraphResponse& response) {
  RunGraphAnswer fields;
  Message message;
  Status outcome = status;
  for (const Tensor& fetch : response.fetches) {
    if (!outcome.ok()) break;
    outcome = put_tensor(fetch, *fields.add_fetch(), message).with_prefix("a fetched tensor");
  }
  for (const Value& sent : response.sent) {
    if (!outcome.ok()) break;
    outcome = put_value(sent, *fields.add_sent(), message).with_prefix("a tensor that was sent");
  }
  fields.set_prompt(response.prompt);
  if (!outcome.ok()) {
    fields.clear_fetch();
    fields.clear_sent();
    message.parts.clear();
    put_status(outcome, *fields.mutable_status());
    fields.set_derived(response.derived);
  }
  for (const TraceEvent& event : response.events) {
    RunGraphAnswer::Event& out = *fields.add_event();
    out.set_kind(static_cast<int32_t>(event.kind));
    out.set_thread(event.thread);
    out.set_node(event.node);
    out.set_op(event.op);
    out.set_device(event.device);
    out.set_scheduled_ns(event.scheduled_ns);
    out.set_start_ns(event.start_ns);
    out.set_end_ns(event.end_ns);
    out.set_allocated_bytes(event.allocated_bytes);
    out.set_peer(event.peer);
    out.set_tensor(event.tensor);
  }
  fields.set_received_ns(response.received_ns);
  fields.set_answered_ns(response.answered_ns);
  fields.AppendToString(&message.fields);
  return message;
}

Status read_run_graph_answer(const Message& message, RunGraphResponse& response) {
  MR_TRY_ASSIGN(RunGraphAnswer fields, parse<RunGraphAnswer>(message));
  response.derived = fields.derived();
  response.received_ns = fields.received_ns();
  response.answered_ns = fields.answered_ns();
  response.prompt = fields.prompt();
  for (RunGraphAnswer::Event& in : *fields.mutable_event()) {
    if (in.kind() < 0 || in.kind() > static_cast<int32_t>(TraceEvent::Kind::kCall)) {
      return invalid_argument("expected a kind of trace event, got number ", in.kind());
    }
    response.events.push_back({.kind = static_cast<TraceEvent::Kind>(in.kind()),
                               .thread = in.thread(),
                               .node = std::move(*in.mutable_node()),
                               .op = std::move(*in.mutable_op()),
                               .device = std::move(*in.mutable_device()),
                               .peer = std::move(*in.mutable_peer()),
                               .tensor = std::move(*in.mutable_tensor()),
                               .scheduled_ns = in.scheduled_ns(),
                               .start_ns = in.start_ns(),
                               .end_ns = in.end_ns(),
                               .allocated_bytes = in.allocated_bytes()});
  }
  MR_TRY(get_status(fields.status()));
  TensorReader tensors(message);
  for (const WireTensor& fetch : fields.fetch()) {
    MR_TRY_ASSIGN(Tensor value, tensors.next(fetch));
    response.fetches.push_back(std::move(value));
  }
  for (const RecvTensorAnswer& sent : fields.sent()) {
    MR_TRY_ASSIGN(Value value, tensors.value(sent));
    response.sent.push_back(std::move(value));
  }
  return ok_status();
}

Message recv_tensor_call(const RecvTensorRequest& request) {
  RecvTensorCall fields;
  fields.set_step_id(request.step_id);
  fields.set_key(request.key);
  return to_message(fields);
}

Result<RecvTensorRequest> read_recv_tensor_call(const Message& message) {
  MR_TRY_ASSIGN(RecvTensorCall fields, parse<RecvTensorCall>(message));
  return RecvTensorRequest{.step_id = fields.step_id(), .key = std::move(*fields.mutable_key())};
}

Result<Message> recv_tensor_answer(const Value& value) {
  RecvTensorAnswer fields;
  Message message;
  MR_TRY(put_value(value, fields, message));
  fields.AppendToString(&message.fields);
  return message;
}

Result<Value> read_recv_tensor_answer(const Message& message) {
  MR_TRY_ASSIGN(const auto fields, parse<RecvTensorAnswer>(message));
  return TensorReader(message).value(fields);
}

Result<Message> give_tensor_call(const GiveTensor& give) {
  GiveTensorCall fields;
  Message message;
  fields.set_step_id(give.step_id);
  fields.set_key(give.key);
  MR_TRY(put_value(give.value, *fields.mutable_value(), message));
  fields.AppendToString(&message.fields);
  return message;
}

Result<GiveTensor> read_give_tensor_call(const Message& message) {
  MR_TRY_ASSIGN(GiveTensorCall fields, parse<GiveTensorCall>(message));
  GiveTensor give{.step_id = fields.step_id(), .key = std::move(*fields.mutable_key())};
  MR_TRY_ASSIGN(give.value, TensorReader(message).value(fields.value()));
  return give;
}

Message abort_step_call(const AbortStep& abort) {
  AbortStepCall fields;
  fields.set_step_id(abort.step_id);
  put_status(abort.reason, *fields.mutable_reason());
  return to_message(fields);
}

Result<AbortStep> read_abort_step_call(const Message& message) {
  MR_TRY_ASSIGN(const auto fields, parse<AbortStepCall>(message));
  return AbortStep{fields.step_id(), get_status(fields.reason())};
}

Message deregister_graph_call(const std::string& handle) {
  DeregisterGraphCall fields;
  fields.set_graph_handle(handle);
  return to_message(fields);
}

Result<std::string> read_deregister_graph_call(const Message& message) {
  MR_TRY_ASSIGN(const auto fields, parse<DeregisterGraphCall>(message));
  return fields.graph_handle();
}

Message cleanup_step_call(int64_t step_id) {
  CleanupStepCall fields;
  fields.set_step_id(step_id);
  return to_message(fields);
}

Result<int64_t> read_cleanup_step_call(const Message& message) {
  MR_TRY_ASSIGN(const auto fields, parse<CleanupStepCall>(message));
  return fields.step_id();
}

Message keep_session_call(const KeepSessionRequest& request) {
  KeepSessionCall fields;
  fields.set_session(request.session);
  fields.set_lease_ms(request.lease_ms);
  fields.set_incarnation(request.incarnation);
  for (const int64_t step : request.over_steps) fields.add_over_step(step);
  for (const std::string& graph : request.over_graphs) fields.add_over_graph(graph);
  return to_message(fields);
}

Result<KeepSessionRequest> read_keep_session_call(const Message& message) {
  MR_TRY_ASSIGN(const auto fields, parse<KeepSessionCall>(message));
  return KeepSessionRequest{
      .session = fields.session(),
      .lease_ms = fields.lease_ms(),
      .incarnation = fields.incarnation(),
      .over_steps = {fields.over_step().begin(), fields.over_step().end()},
      .over_graphs = {fields.over_graph().begin(), fields.over_graph().end()}};
}

Message get_activity_call(int64_t step_id) {
  GetActivityCall fields;
  fields.set_step_id(step_id);
  return to_message(fields);
}

Result<int64_t> read_get_activity_call(const Message& message) {
  MR_TRY_ASSIGN(const auto fields, parse<GetActivityCall>(message));
  return fields.step_id();
}

Message get_activity_answer(const WorkerActivity& activity) {
  GetActivityAnswer fields;
  for (const WorkerActivity::Session& in : activity.sessions) {
    GetActivityAnswer::Session& out = *fields.add_session();
    out.set_name(in.name);
    out.set_lease_left_ms(in.lease_left_ms);
    out.set_graphs(in.graphs);
  }
  for (const WorkerActivity::Step& in : activity.steps) {
    GetActivityAnswer::Step& out = *fields.add_step();
    out.set_id(in.id);
    out.set_session(in.session);
    for (const std::string& wait : in.waits_for) out.add_waits_for(wait);
    for (const std::string& line : in.defined) out.add_defined(line);
    out.set_running_ms(in.running_ms);
  }
  put_counters(activity, fields);
  return to_message(fields);
}

Result<WorkerActivity> read_get_activity_answer(const Message& message) {
  MR_TRY_ASSIGN(const auto fields, parse<GetActivityAnswer>(message));
  WorkerActivity activity;
  for (const GetActivityAnswer::Session& in : fields.session()) {
    activity.sessions.push_back({in.name(), in.lease_left_ms(), in.graphs()});
  }
  for (const GetActivityAnswer::Step& in : fields.step()) {
    WorkerActivity::Step& out = activity.steps.emplace_back();
    out.id = in.id();
    out.session = in.session();
    out.waits_for.assign(in.waits_for().begin(), in.waits_for().end());
    out.defined.assign(in.defined().begin(), in.defined().end());
    out.defined.resize(out.waits_for.size());
    out.running_ms = in.running_ms();
  }
  get_counters(fields, activity);
  return activity;
}

Message delete_session_call(const std::string& session) {
  DeleteSessionCall fields;
  fields.set_session(session);
  return to_message(fields);
}

Result<std::string> read_delete_session_call(const Message& message) {
  MR_TRY_ASSIGN(const auto fields, parse<DeleteSessionCall>(message));
  return fields.session();
}

Message reset_call(const std::vector<std::string>& containers) {
  ResetCall fields;
  for (const std::string& container : containers) fields.add_container(container);
  return to_message(fields);
}

Result<std::vector<std::string>> read_reset_call(const Message& message) {
  MR_TRY_ASSIGN(const auto fields, parse<ResetCall>(message));
  return std::vector<std::string>(fields.container().begin(), fields.container().end());
}

Message join_group_call(const JoinGroupRequest& request) {
  JoinGroupCall fields;
  fields.set_group_key(request.group_key);
  fields.set_group_size(request.group_size);
  fields.set_min_size(request.min_size);
  fields.set_member(request.member);
  fields.set_incarnation(request.incarnation);
  fields.set_attempt(request.attempt);
  fields.set_last_number(request.last_number);
  return to_message(fields);
}

Result<JoinGroupRequest> read_join_group_call(const Message& message) {
  MR_TRY_ASSIGN(const auto fields, parse<JoinGroupCall>(message));
  return JoinGroupRequest{.group_key = fields.group_key(),
                          .group_size = fields.group_size(),
                          .min_size = fields.min_size(),
                          .member = fields.member(),
                          .incarnation = fields.incarnation(),
                          .attempt = fields.attempt(),
                          .last_number = fields.last_number()};
}

Message join_group_answer(const GroupView& view) {
  JoinGroupAnswer fields;
  fields.set_epoch(view.epoch);
  fields.set_number(view.number);
  for (const std::string& member : view.members) fields.add_member(member);
  return to_message(fields);
}

Result<GroupView> read_join_group_answer(const Message& message) {
  MR_TRY_ASSIGN(const auto fields, parse<JoinGroupAnswer>(message));
  return GroupView{.epoch = fields.epoch(),
                   .number = fields.number(),
                   .members = {fields.member().begin(), fields.member().end()}};
}

Message recv_chunk_call(const RecvChunkRequest& request) {
  RecvChunkCall fields;
  fields.set_group_key(request.group_key);
  fields.set_epoch(request.epoch);
  fields.set_member(request.member);
  fields.set_rank(request.rank);
  fields.set_asker(request.asker);
  fields.set_instance_key(request.instance_key);
  fields.set_sequence(request.sequence);
  fields.set_what(request.what);
  fields.set_phase(request.phase);
  fields.set_chunk(request.chunk);
  return to_message(fields);
}

Result<RecvChunkRequest> read_recv_chunk_call(const Message& message) {
  MR_TRY_ASSIGN(const auto fields, parse<RecvChunkCall>(message));
  return RecvChunkRequest{.group_key = fields.group_key(),
                          .epoch = fields.epoch(),
                          .member = fields.member(),
                          .rank = fields.rank(),
                          .asker = fields.asker(),
                          .instance_key = fields.instance_key(),
                          .sequence = fields.sequence(),
                          .what = fields.what(),
                          .phase = fields.phase(),
                          .chunk = fields.chunk()};
}

Result<Message> recv_chunk_answer(const Tensor& chunk) {
  WireTensor fields;
  Message message;
  MR_TRY(put_tensor(chunk, fields, message));
  fields.AppendToString(&message.fields);
  return message;
}

Result<Tensor> read_recv_chunk_answer(const Message& message) {
  MR_TRY_ASSIGN(const auto fields, parse<WireTensor>(message));
  return TensorReader(message).next(fields);
}

Message end_group_call(const EndGroupRequest& request) {
  EndGroupCall fields;
  fields.set_group_key(request.group_key);
  fields.set_epoch(request.epoch);
  put_status(request.reason, *fields.mutable_reason());
  return to_message(fields);
}

Result<EndGroupRequest> read_end_group_call(const Message& message) {
  MR_TRY_ASSIGN(const auto fields, parse<EndGroupCall>(message));
  return EndGroupRequest{fields.group_key(), fields.epoch(), get_status(fields.reason())};
}

}  // namespace millrace::worker_wire
