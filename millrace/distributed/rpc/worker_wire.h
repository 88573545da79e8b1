#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/distributed/rpc/message.h"
#include "millrace/distributed/worker_interface.h"

// Requests and answers of WorkerInterface as messages, and back. What is read comes from a stranger
// as far as its bytes go: INVALID_ARGUMENT says what is wrong with them.

namespace millrace::worker_wire {

// The methods, each one function of WorkerInterface.
inline constexpr std::string_view kGetStatus = "/millrace.Worker/GetStatus";
inline constexpr std::string_view kRegisterGraph = "/millrace.Worker/RegisterGraph";
inline constexpr std::string_view kDeregisterGraph = "/millrace.Worker/DeregisterGraph";
inline constexpr std::string_view kRunGraph = "/millrace.Worker/RunGraph";
inline constexpr std::string_view kRecvTensor = "/millrace.Worker/RecvTensor";
inline constexpr std::string_view kGiveTensor = "/millrace.Worker/GiveTensor";
inline constexpr std::string_view kAbortStep = "/millrace.Worker/AbortStep";
inline constexpr std::string_view kCleanupStep = "/millrace.Worker/CleanupStep";
inline constexpr std::string_view kKeepSession = "/millrace.Worker/KeepSession";
inline constexpr std::string_view kGetActivity = "/millrace.Worker/GetActivity";
inline constexpr std::string_view kDeleteSession = "/millrace.Worker/DeleteSession";
inline constexpr std::string_view kReset = "/millrace.Worker/Reset";
inline constexpr std::string_view kJoinGroup = "/millrace.Worker/JoinGroup";
inline constexpr std::string_view kRecvChunk = "/millrace.Worker/RecvChunk";
inline constexpr std::string_view kEndGroup = "/millrace.Worker/EndGroup";

Message get_status_answer(const WorkerStatus& status);
Result<WorkerStatus> read_get_status_answer(const Message& message);

Message register_graph_call(const RegisterGraphRequest& request);
Result<RegisterGraphRequest> read_register_graph_call(const Message& message);
Message register_graph_answer(const std::string& handle);
Result<std::string> read_register_graph_answer(const Message& message);

// UNIMPLEMENTED for a feed or a fetch that cannot leave the process.
Result<Message> run_graph_call(const RunGraphRequest& request);
Result<RunGraphRequest> read_run_graph_call(const Message& message);
Message run_graph_answer(const Status& status, const RunGraphResponse& response);
// The error of the run, or of the message.
Status read_run_graph_answer(const Message& message, RunGraphResponse& response);

Message recv_tensor_call(const RecvTensorRequest& request);
Result<RecvTensorRequest> read_recv_tensor_call(const Message& message);
Result<Message> recv_tensor_answer(const Value& value);
Result<Value> read_recv_tensor_answer(const Message& message);

struct GiveTensor {
  int64_t step_id = 0;
  std::string key;
  Value value;
};
Result<Message> give_tensor_call(const GiveTensor& give);
Result<GiveTensor> read_give_tensor_call(const Message& message);

struct AbortStep {
  int64_t step_id = 0;
  Status reason;
};
Message abort_step_call(const AbortStep& abort);
Result<AbortStep> read_abort_step_call(const Message& message);

Message deregister_graph_call(const std::string& handle);
Result<std::string> read_deregister_graph_call(const Message& message);
Message cleanup_step_call(int64_t step_id);
Result<int64_t> read_cleanup_step_call(const Message& message);
Message keep_session_call(const KeepSessionRequest& request);
Result<KeepSessionRequest> read_keep_session_call(const Message& message);
Message get_activity_call(int64_t step_id);
Result<int64_t> read_get_activity_call(const Message& message);
Message get_activity_answer(const WorkerActivity& activity);
Result<WorkerActivity> read_get_activity_answer(const Message& message);
Message delete_session_call(const std::string& session);
Result<std::string> read_delete_session_call(const Message& message);
Message reset_call(const std::vector<std::string>& containers);
Result<std::vector<std::string>> read_reset_call(const Message& message);

Message join_group_call(const JoinGroupRequest& request);
Result<JoinGroupRequest> read_join_group_call(const Message& message);
Message join_group_answer(const GroupView& view);
Result<GroupView> read_join_group_answer(const Message& message);
Message recv_chunk_call(const RecvChunkRequest& request);
Result<RecvChunkRequest> read_recv_chunk_call(const Message& message);
Result<Message> recv_chunk_answer(const Tensor& chunk);
Result<Tensor> read_recv_chunk_answer(const Message& message);
Message end_group_call(const EndGroupRequest& request);
Result<EndGroupRequest> read_end_group_call(const Message& message);

}  // namespace millrace::worker_wire
