#include "millrace/distributed/rpc/wire_fields.h"
#include "millrace/distributed/rpc/worker_wire.h"
#include "proto/worker_call.pb.h"

// get_activity: what a task tells those who watch it.
namespace millrace::worker_wire {
namespace {

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

}  // namespace millrace::worker_wire
