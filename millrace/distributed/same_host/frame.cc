#include "millrace/distributed/same_host/frame.h"

#include <algorithm>
#include <cstring>

#include "millrace/distributed/same_host/shared_ring.h"

namespace millrace {
namespace {

template <class T>
void append(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string begin_frame(FrameKind kind, uint64_t call, size_t reserve = 0) {
  std::string frame;
  frame.reserve(sizeof(FrameHead) + reserve);
  append(frame, FrameHead{kind, 0, call});
  return frame;
}

Result<std::string> end_frame(std::string frame) {
  const size_t body = frame.size() - sizeof(FrameHead);
  if (body > kMaxBody) {
    return resource_exhausted("a message may have ", kMaxBody, " bytes beside its tensors, got ",
                              body);
  }
  const auto size = static_cast<uint32_t>(body);
  std::memcpy(frame.data() + offsetof(FrameHead, body), &size, sizeof size);
  return frame;
}

// The sizes of parts, the fields, the small parts.
void append_message(std::string& out, const Message& message) {
  append(out, static_cast<uint32_t>(message.parts.size()));
  for (const Message::Part& part : message.parts) append(out, uint64_t{part.size});
  append(out, static_cast<uint32_t>(message.fields.size()));
  out += message.fields;
  for (const Message::Part& part : message.parts) {
    if (part.size <= kInlinePart) out.append(static_cast<const char*>(part.data()), part.size);
  }
}

size_t message_bytes(const Message& message) {
  size_t size = 8 + message.fields.size();
  for (const Message::Part& part : message.parts) {
    size += 8 + (part.size <= kInlinePart ? part.size : 0);
  }
  return size;
}

// Takes values from the front of a body.
class Body {
 public:
  explicit Body(std::string_view bytes) : rest_(bytes) {}

  template <class T>
  Result<T> number() {
    MR_TRY_ASSIGN(const std::string_view bytes, take(sizeof(T)));
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  Result<std::string_view> take(uint64_t size) {
    if (size > rest_.size()) {
      return invalid_argument("a frame is cut: expected ", size, " bytes more, got ", rest_.size());
    }
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  std::string_view rest() const { return rest_; }
  Status end() const {
    if (rest_.empty()) return ok_status();
    return invalid_argument("a frame has ", rest_.size(), " bytes too many");
  }

 private:
  std::string_view rest_;
};

Result<IncomingMessage> read_message(Body& body) {
  IncomingMessage incoming;
  MR_TRY_ASSIGN(const uint32_t parts, body.number<uint32_t>());
  if (parts > kMaxPartCount) {
    return invalid_argument("a message may have ", kMaxPartCount, " parts, got ", parts);
  }
  MR_TRY_ASSIGN(const std::string_view sizes, body.take(uint64_t{parts} * sizeof(uint64_t)));
  MR_TRY_ASSIGN(const uint32_t fields, body.number<uint32_t>());
  MR_TRY_ASSIGN(incoming.message.fields, body.take(fields));
  incoming.message.parts.reserve(parts);
  uint64_t total = 0;
  for (size_t i = 0; i < parts; ++i) {
    uint64_t size;
    std::memcpy(&size, sizes.data() + i * sizeof size, sizeof size);
    if (size > kMaxParts || (total += size) > kMaxParts) {
      return invalid_argument("a message may have ", kMaxParts, " bytes in tensors, got more");
    }
    MR_TRY_ASSIGN(Ref<Buffer> buffer,
                  Buffer::allocate(DType::kUInt8, static_cast<int64_t>(size), cpu_allocator()));
    if (size <= kInlinePart) {
      MR_TRY_ASSIGN(const std::string_view bytes, body.take(size));
      if (size > 0) std::memcpy(buffer->mutable_data(), bytes.data(), size);
    } else {
      incoming.missing += size;
    }
    incoming.message.parts.push_back({std::move(buffer), 0, size});
  }
  MR_TRY(body.end());
  return incoming;
}

}  // namespace

Result<std::string> call_frame(uint64_t call, std::string_view method, const Message& message) {
  std::string frame =
      begin_frame(FrameKind::kCall, call, 4 + method.size() + message_bytes(message));
  append(frame, static_cast<uint32_t>(method.size()));
  frame += method;
  append_message(frame, message);
  return end_frame(std::move(frame));
}

Result<std::string> answer_frame(uint64_t call, const Message& message) {
  std::string frame = begin_frame(FrameKind::kAnswer, call, 4 + message_bytes(message));
  append(frame, uint32_t{0});
  append_message(frame, message);
  return end_frame(std::move(frame));
}

std::string error_frame(FrameKind kind, uint64_t call, const Status& error) {
  std::string frame = begin_frame(kind, call);
  append(frame, static_cast<uint32_t>(error.code()));
  frame += error.message().substr(0, size_t{1} << 20);
  return end_frame(std::move(frame)).value();
}

std::string chunk_frame(uint64_t call, const ChunkBody& chunk) {
  std::string frame = begin_frame(FrameKind::kChunk, call, sizeof chunk);
  append(frame, chunk);
  return end_frame(std::move(frame)).value();
}

std::string empty_frame(FrameKind kind) { return begin_frame(kind, 0); }

Result<IncomingCall> read_call(std::string_view bytes) {
  Body body(bytes);
  IncomingCall call;
  MR_TRY_ASSIGN(const uint32_t size, body.number<uint32_t>());
  MR_TRY_ASSIGN(call.method, body.take(size));
  MR_TRY_ASSIGN(call.body, read_message(body));
  return call;
}

Result<IncomingAnswer> read_answer(std::string_view bytes) {
  Body body(bytes);
  IncomingAnswer answer;
  MR_TRY_ASSIGN(const uint32_t code, body.number<uint32_t>());
  if (code == 0) {
    MR_TRY_ASSIGN(answer.body, read_message(body));
    return answer;
  }
  const bool known = code <= static_cast<uint32_t>(Code::kUnauthenticated);
  answer.status = Status(known ? static_cast<Code>(code) : Code::kUnknown, body.rest());
  return answer;
}

Result<ChunkBody> read_chunk(std::string_view bytes) {
  Body body(bytes);
  MR_TRY_ASSIGN(const ChunkBody chunk, body.number<ChunkBody>());
  MR_TRY(body.end());
  if (chunk.slot >= SharedRing::kSlots || chunk.size > SharedRing::kSlotBytes) {
    return invalid_argument("no chunk of ", chunk.size, " bytes is in slot ", chunk.slot);
  }
  return chunk;
}

}  // namespace millrace
