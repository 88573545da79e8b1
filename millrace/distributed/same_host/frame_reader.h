#pragma once

#include <string>
#include <string_view>

#include "millrace/distributed/same_host/frame.h"
#include "millrace/distributed/same_host/local_socket.h"

namespace millrace {

// Reads frames from a socket, one after another. For one thread at a time.
class FrameReader {
 public:
  explicit FrameReader(const OwnedFd& socket) : socket_(socket) {}

  struct Frame {
    FrameHead head;
    std::string_view body;  // until the next call
  };
  // Waits for the next frame: asleep, but for some microseconds where the last one did not take
  // longer, and there is more than one processor. UNAVAILABLE at the end of the
  // stream; INVALID_ARGUMENT for what is no frame, and nothing can be read after that.
  Result<Frame> next();

 private:
  // Makes at least `size` unread bytes available.
  Status fill(size_t size);

  const OwnedFd& socket_;
  std::string buffer_;
  size_t begin_ = 0, end_ = 0;  // the bytes not taken yet
  int64_t waited_ns_ = 0;       // for what came last
};

}  // namespace millrace
