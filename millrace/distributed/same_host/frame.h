#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "millrace/base/status.h"
#include "millrace/distributed/rpc/message_bytes.h"

// What goes over the socket of a connection: frames of a head and a body. Numbers are the
// machine's, since both ends are on it.

namespace millrace {

enum class FrameKind : uint32_t {
  kCall = 1,  // CallBody: the method's name and a message
  kAnswer,    // AnswerBody: a code, and the error's text or a message
  kCancel,    // AnswerBody with an error: the caller has given up
  kChunk,     // ChunkBody: bytes of a large part, in the ring
  kPing,      // nothing; answered by
  kPong,      // nothing
};

struct FrameHead {
  FrameKind kind;
  uint32_t body;  // bytes that follow
  uint64_t call;
};

struct ChunkBody {
  uint32_t part;
  uint32_t slot;  // of the ring
  uint64_t offset;
  uint64_t size;
};

// A message and a method's name, at most.
inline constexpr uint32_t kMaxBody = kMaxMessageBytes + (uint32_t{1} << 16);

// A head and a body. RESOURCE_EXHAUSTED for what is too large.
Result<std::string> call_frame(uint64_t call, std::string_view method, const Message& message);
Result<std::string> answer_frame(uint64_t call, const Message& message);
std::string error_frame(FrameKind kind, uint64_t call, const Status& error);
std::string chunk_frame(uint64_t call, const ChunkBody& chunk);
std::string empty_frame(FrameKind kind);

struct IncomingCall {
  std::string method;
  IncomingMessage body;
};
struct IncomingAnswer {
  Status status;
  IncomingMessage body;  // when OK
};

// INVALID_ARGUMENT for bodies that are none; RESOURCE_EXHAUSTED when memory for parts is missing.
Result<IncomingCall> read_call(std::string_view body);
Result<IncomingAnswer> read_answer(std::string_view body);
// Also when the ring has no such slot, or the slot not so many bytes.
Result<ChunkBody> read_chunk(std::string_view body);

}  // namespace millrace
