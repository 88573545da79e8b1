#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <vector>

#include "millrace/distributed/grpc/grpc_library.h"

namespace millrace::grpc_library {

// What a peer may send of a call before it is read, and how much of that at once. But of a
// connection gRPC lets it send 64 KiB, and more only when it has come: each tensor would cost a
// round trip. Probes have gRPC find out that the way is long, and ask for more beforehand; to a
// peer of this machine they cost more than they gain.
inline constexpr int kLookahead = 8 << 20;
inline constexpr int kFrame = 1 << 20;

// A message for gRPC; large pieces are not copied, but kept until they are sent.
grpc::ByteBuffer buffer_of(const std::vector<Piece>& message);

// A message of gRPC's as the pieces it came in. They live as long as this does.
class ReceivedMessage {
 public:
  explicit ReceivedMessage(const grpc::ByteBuffer& buffer);
  const std::vector<Bytes>& pieces() const { return pieces_; }

 private:
  std::vector<grpc::Slice> slices_;
  std::vector<Bytes> pieces_;
};

}  // namespace millrace::grpc_library
