#include "millrace/distributed/same_host/frame.h"

#include <cstring>

#include "millrace/distributed/same_host/shared_ring.h"

namespace millrace {
namespace {

std::string begin_frame(FrameKind kind, uint64_t call, size_t reserve = 0) {
  std::string frame;
  frame.reserve(sizeof(FrameHead) + reserve);
  append_bytes(frame, FrameHead{kind, 0, call});
  return frame;
}

std::string end_frame(std::string frame) {
  const auto size = static_cast<uint32_t>(frame.size() - sizeof(FrameHead));
  std::memcpy(frame.data() + offsetof(FrameHead, body), &size, sizeof size);
  return frame;
}

}  // namespace

Result<std::string> call_frame(uint64_t call, std::string_view method, const Message& message) {
  std::string frame =
      begin_frame(FrameKind::kCall, call, 4 + method.size() + message_bytes(message));
  append_bytes(frame, static_cast<uint32_t>(method.size()));
  frame += method;
  MR_TRY(append_message(frame, message));
  return end_frame(std::move(frame));
}

Result<std::string> answer_frame(uint64_t call, const Message& message) {
  std::string frame = begin_frame(FrameKind::kAnswer, call, 4 + message_bytes(message));
  append_bytes(frame, uint32_t{0});
  MR_TRY(append_message(frame, message));
  return end_frame(std::move(frame));
}

std::string error_frame(FrameKind kind, uint64_t call, const Status& error) {
  std::string frame = begin_frame(kind, call);
  append_status(frame, error);
  return end_frame(std::move(frame));
}

std::string chunk_frame(uint64_t call, const ChunkBody& chunk) {
  std::string frame = begin_frame(FrameKind::kChunk, call, sizeof chunk);
  append_bytes(frame, chunk);
  return end_frame(std::move(frame));
}

std::string empty_frame(FrameKind kind) { return begin_frame(kind, 0); }

Result<IncomingCall> read_call(std::string_view bytes) {
  ByteReader body(bytes);
  IncomingCall call;
  MR_TRY_ASSIGN(const uint32_t size, body.number<uint32_t>());
  MR_TRY_ASSIGN(call.method, body.take(size));
  MR_TRY_ASSIGN(call.body, read_message(body));
  return call;
}

Result<IncomingAnswer> read_answer(std::string_view bytes) {
  ByteReader body(bytes);
  IncomingAnswer answer;
  MR_TRY(read_status(body, answer.status));
  if (answer.status.ok()) {
    MR_TRY_ASSIGN(answer.body, read_message(body));
  }
  return answer;
}

Result<ChunkBody> read_chunk(std::string_view bytes) {
  ByteReader body(bytes);
  MR_TRY_ASSIGN(const ChunkBody chunk, body.number<ChunkBody>());
  MR_TRY(body.end());
  if (chunk.slot >= SharedRing::kSlots || chunk.size > SharedRing::kSlotBytes) {
    return invalid_argument("no chunk of ", chunk.size, " bytes is in slot ", chunk.slot);
  }
  return chunk;
}

}  // namespace millrace
