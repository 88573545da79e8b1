#pragma once

#include <cstdint>
#include <vector>

#include "millrace/distributed/grpc/grpc_library.h"
#include "millrace/distributed/rpc/message_bytes.h"

// Calls as streams of gRPC messages, each a kind (4 bytes) and a body:
//
//   1 message  as message_bytes.h has it; chunks with the rest follow
//   2 error    a code and a text, in place of an answer
//   3 cancel   a code and a text: the caller has given up and will not wait long for an answer
//   4 chunk    the next bytes of the parts that are not in the message, in order
//
// The caller says 1 4*, and perhaps 3 at any time; the other side 1 4*, or 2.

namespace millrace {

enum class StreamKind : uint32_t { kMessage = 1, kError, kCancel, kChunk };

inline constexpr size_t kChunkBytes = size_t{1} << 20;

// A message as it is sent, one piece of the stream after the other. RESOURCE_EXHAUSTED for one that
// is too large.
Result<std::vector<std::vector<grpc_library::Piece>>> stream_message(const Message& message);
std::vector<grpc_library::Piece> stream_error(StreamKind kind, const Status& error);

// Reads what comes from a peer, who may send anything.
class StreamReader {
 public:
  struct Heard {
    // kChunk: nothing that is whole yet.
    StreamKind kind = StreamKind::kChunk;
    Message message;  // of kMessage
    Status error;     // of kError and kCancel
  };
  // INVALID_ARGUMENT for what is none of the above, a second message, or a chunk too many;
  // RESOURCE_EXHAUSTED when memory for parts is missing.
  Result<Heard> take(const std::vector<grpc_library::Bytes>& pieces);

 private:
  Status take_chunk(const std::vector<grpc_library::Bytes>& pieces);

  bool begun_ = false;
  IncomingMessage incoming_;
  // Where the next bytes go.
  size_t part_ = 0;
  size_t offset_ = 0;
};

// All pieces in one.
std::string join_bytes(const std::vector<grpc_library::Bytes>& pieces);

}  // namespace millrace
