#include "millrace/distributed/rpc/wire_fields.h"
#include "millrace/distributed/rpc/worker_wire.h"
#include "proto/worker_call.pb.h"

// run_graph: what a run is given, and what it came to.
namespace millrace::worker_wire {

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
  for (const std::string& key : request.early) fields.add_early(key);
  fields.set_continues(request.continues);
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
  request.early.assign(fields.early().begin(), fields.early().end());
  request.continues = fields.continues();
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
  fields.set_waits_for_peers_only(response.waits_for_peers_only);
  fields.set_goes_on(outcome.ok() && response.goes_on);
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
  response.waits_for_peers_only = fields.waits_for_peers_only();
  response.goes_on = fields.goes_on();
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

}  // namespace millrace::worker_wire
