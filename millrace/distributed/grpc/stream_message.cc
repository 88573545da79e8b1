#include "millrace/distributed/grpc/stream_message.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

namespace millrace {
namespace {

using grpc_library::Bytes;
using grpc_library::Piece;

constexpr StreamKind kChunkKind = StreamKind::kChunk;

Piece owned(std::string text) {
  auto kept = std::make_shared<const std::string>(std::move(text));
  return {kept->data(), kept->size(), kept};
}

}  // namespace

Result<std::vector<std::vector<Piece>>> stream_message(const Message& message) {
  std::string head;
  head.reserve(4 + message_bytes(message));
  append_bytes(head, StreamKind::kMessage);
  MR_TRY(append_message(head, message));
  std::vector<std::vector<Piece>> out;
  out.push_back({owned(std::move(head))});
  for (const Message::Part& part : message.parts) {
    if (part.size <= kInlinePart) continue;
    const std::shared_ptr<const void> owner(part.data(), [kept = part.buffer](const void*) {});
    const auto* bytes = static_cast<const char*>(part.data());
    for (size_t offset = 0; offset < part.size; offset += kChunkBytes) {
      const size_t size = std::min(kChunkBytes, part.size - offset);
      out.push_back({{&kChunkKind, sizeof kChunkKind, nullptr}, {bytes + offset, size, owner}});
    }
  }
  return out;
}

std::vector<Piece> stream_error(StreamKind kind, const Status& error) {
  std::string text;
  append_bytes(text, kind);
  append_status(text, error);
  return {owned(std::move(text))};
}

std::string join_bytes(const std::vector<Bytes>& pieces) {
  size_t size = 0;
  for (const Bytes& piece : pieces) size += piece.size;
  std::string out;
  out.reserve(size);
  for (const Bytes& piece : pieces) out.append(static_cast<const char*>(piece.data), piece.size);
  return out;
}

Result<StreamReader::Heard> StreamReader::take(const std::vector<Bytes>& pieces) {
  // The kind may be cut in two, as anything may.
  char first[sizeof(StreamKind)];
  size_t known = 0;
  for (const Bytes& piece : pieces) {
    const size_t more = std::min(piece.size, sizeof first - known);
    std::memcpy(first + known, piece.data, more);
    known += more;
    if (known == sizeof first) break;
  }
  StreamKind kind{};
  if (known == sizeof first) std::memcpy(&kind, first, sizeof kind);
  Heard heard;
  if (kind == StreamKind::kChunk) {
    MR_TRY(take_chunk(pieces));
    if (incoming_.missing > 0) return heard;
    return Heard{StreamKind::kMessage, std::move(incoming_.message), ok_status()};
  }
  const std::string bytes = join_bytes(pieces);
  ByteReader body(std::string_view(bytes).substr(known));
  switch (kind) {
    case StreamKind::kMessage: {
      if (begun_) return invalid_argument("a call has one message each way, got another");
      begun_ = true;
      MR_TRY_ASSIGN(incoming_, read_message(body));
      if (incoming_.missing > 0) return heard;
      return Heard{kind, std::move(incoming_.message), ok_status()};
    }
    case StreamKind::kError:
    case StreamKind::kCancel: {
      heard.kind = kind;
      MR_TRY(read_status(body, heard.error));
      if (heard.error.ok()) return invalid_argument("an error has no code");
      return heard;
    }
    case StreamKind::kChunk:
      break;
  }
  return invalid_argument("no message begins with ", known, " bytes of ",
                          static_cast<uint32_t>(kind));
}

Status StreamReader::take_chunk(const std::vector<Bytes>& pieces) {
  size_t skip = sizeof(StreamKind);
  for (const Bytes& piece : pieces) {
    const size_t skipped = std::min(skip, piece.size);
    skip -= skipped;
    const char* bytes = static_cast<const char*>(piece.data) + skipped;
    size_t size = piece.size - skipped;
    if (size > incoming_.missing) {
      return invalid_argument("a chunk has ", size, " bytes where ", incoming_.missing,
                              " are missing");
    }
    incoming_.missing -= size;
    while (size > 0) {
      // Something is missing, so there is such a part.
      Message::Part& part = incoming_.message.parts[part_];
      if (part.size <= kInlinePart || offset_ == part.size) {
        ++part_;
        offset_ = 0;
        continue;
      }
      const size_t some = std::min(size, part.size - offset_);
      std::memcpy(static_cast<char*>(part.buffer->mutable_data()) + offset_, bytes, some);
      offset_ += some;
      bytes += some;
      size -= some;
    }
  }
  return ok_status();
}

}  // namespace millrace
