#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <vector>

#include "millrace/distributed/grpc/grpc_library.h"

namespace millrace::grpc_library {

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
