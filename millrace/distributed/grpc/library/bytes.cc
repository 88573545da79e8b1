#include "millrace/distributed/grpc/library/bytes.h"

#include <memory>

namespace millrace::grpc_library {
namespace {

// Below it, a copy costs less than keeping the owner.
constexpr size_t kCopied = 1024;

}  // namespace

grpc::ByteBuffer buffer_of(const std::vector<Piece>& message) {
  std::vector<grpc::Slice> slices;
  slices.reserve(message.size());
  for (const Piece& piece : message) {
    if (piece.size <= kCopied) {
      slices.emplace_back(piece.data, piece.size);
      continue;
    }
    auto* owner = new std::shared_ptr<const void>(piece.owner);
    slices.emplace_back(
        const_cast<void*>(piece.data), piece.size,
        [](void* kept) { delete static_cast<std::shared_ptr<const void>*>(kept); }, owner);
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

ReceivedMessage::ReceivedMessage(const grpc::ByteBuffer& buffer) {
  // It fails for a compressed message that cannot be read, which is then empty.
  if (!buffer.Dump(&slices_).ok()) slices_.clear();
  pieces_.reserve(slices_.size());
  for (const grpc::Slice& slice : slices_) pieces_.push_back({slice.begin(), slice.size()});
}

}  // namespace millrace::grpc_library
