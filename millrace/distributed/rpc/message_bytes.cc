#include "millrace/distributed/rpc/message_bytes.h"

#include <utility>

namespace millrace {
namespace {

constexpr size_t kMaxText = size_t{1} << 20;

}  // namespace

Result<std::string_view> ByteReader::take(uint64_t size) {
  if (size > rest_.size()) {
    return invalid_argument("a message is cut: expected ", size, " bytes more, got ", rest_.size());
  }
  const std::string_view taken = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return taken;
}

Status ByteReader::end() const {
  if (rest_.empty()) return ok_status();
  return invalid_argument("a message has ", rest_.size(), " bytes too many");
}

size_t message_bytes(const Message& message) {
  size_t size = 8 + message.fields.size();
  for (const Message::Part& part : message.parts) {
    size += 8 + (part.size <= kInlinePart ? part.size : 0);
  }
  return size;
}

Status append_message(std::string& out, const Message& message) {
  if (message.parts.size() > kMaxPartCount || message.part_bytes() > kMaxPartBytes) {
    return resource_exhausted("a message may have ", kMaxPartCount, " tensors of ", kMaxPartBytes,
                              " bytes together, got ", message.parts.size(), " of ",
                              message.part_bytes());
  }
  if (const size_t size = message_bytes(message); size > kMaxMessageBytes) {
    return resource_exhausted("a message may have ", kMaxMessageBytes,
                              " bytes beside its tensors, got ", size);
  }
  append_bytes(out, static_cast<uint32_t>(message.parts.size()));
  for (const Message::Part& part : message.parts) append_bytes(out, uint64_t{part.size});
  append_bytes(out, static_cast<uint32_t>(message.fields.size()));
  out += message.fields;
  for (const Message::Part& part : message.parts) {
    if (part.size <= kInlinePart) out.append(static_cast<const char*>(part.data()), part.size);
  }
  return ok_status();
}

Result<IncomingMessage> read_message(ByteReader& bytes) {
  IncomingMessage incoming;
  MR_TRY_ASSIGN(const uint32_t parts, bytes.number<uint32_t>());
  if (parts > kMaxPartCount) {
    return invalid_argument("a message may have ", kMaxPartCount, " parts, got ", parts);
  }
  MR_TRY_ASSIGN(const std::string_view sizes, bytes.take(uint64_t{parts} * sizeof(uint64_t)));
  MR_TRY_ASSIGN(const uint32_t fields, bytes.number<uint32_t>());
  MR_TRY_ASSIGN(incoming.message.fields, bytes.take(fields));
  incoming.message.parts.reserve(parts);
  uint64_t total = 0;
  for (size_t i = 0; i < parts; ++i) {
    uint64_t size;
    std::memcpy(&size, sizes.data() + i * sizeof size, sizeof size);
    if (size > kMaxPartBytes || (total += size) > kMaxPartBytes) {
      return invalid_argument("a message may have ", kMaxPartBytes, " bytes in tensors, got more");
    }
    MR_TRY_ASSIGN(Ref<Buffer> buffer,
                  Buffer::allocate(DType::kUInt8, static_cast<int64_t>(size), cpu_allocator()));
    if (size <= kInlinePart) {
      MR_TRY_ASSIGN(const std::string_view small, bytes.take(size));
      if (size > 0) std::memcpy(buffer->mutable_data(), small.data(), size);
    } else {
      incoming.missing += size;
    }
    incoming.message.parts.push_back({std::move(buffer), 0, size});
  }
  MR_TRY(bytes.end());
  return incoming;
}

void append_status(std::string& out, const Status& status) {
  append_bytes(out, static_cast<uint32_t>(status.code()));
  out += status.message().substr(0, kMaxText);
}

Status read_status(ByteReader& bytes, Status& status) {
  MR_TRY_ASSIGN(const uint32_t code, bytes.number<uint32_t>());
  const bool known = code <= static_cast<uint32_t>(Code::kUnauthenticated);
  status = code == 0 ? ok_status()
                     : Status(known ? static_cast<Code>(code) : Code::kUnknown, bytes.rest());
  return ok_status();
}

}  // namespace millrace
