#include "millrace/distributed/rpc/worker_wire.h"

#include <algorithm>

#include "millrace/distributed/rpc/wire_fields.h"
#include "proto/worker_call.pb.h"

// Graphs, sessions and steps, and what a task is. What carries tensors or tells more is in the
// files beside this one.
namespace millrace::worker_wire {

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

}  // namespace millrace::worker_wire
