#include "millrace/distributed/rpc/wire_fields.h"
#include "millrace/distributed/rpc/worker_wire.h"
#include "proto/worker_call.pb.h"

// What members of a group of collective operations ask.
namespace millrace::worker_wire {

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
