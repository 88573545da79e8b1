#include "millrace/distributed/rpc/wire_fields.h"
#include "millrace/distributed/rpc/worker_wire.h"
#include "proto/worker_call.pb.h"

// The calls that carry one value of a step: recv_tensor and give_tensor.
namespace millrace::worker_wire {

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

}  // namespace millrace::worker_wire
