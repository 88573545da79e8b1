#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "millrace/base/function.h"
#include "millrace/base/mutex.h"
#include "millrace/distributed/same_host/frame.h"
#include "millrace/distributed/same_host/local_socket.h"
#include "millrace/distributed/same_host/shared_ring.h"

namespace millrace {

// Writes frames to a socket, and the memory of large parts through a ring. A frame goes out at once
// where the socket takes it; the rest, and all parts, are left to run(). Frames keep their order,
// small ones overtake large parts. Thread-safe.
class FrameWriter {
 public:
  FrameWriter(const OwnedFd& socket, Ref<SharedRing> ring)
      : socket_(socket), ring_(std::move(ring)) {}

  // Sends a frame and then the large parts of `message`, whose memory is read until they are sent.
  void send(uint64_t call, const std::string& frame, const Message& message);
  // Forgets the parts of a call that are not sent yet; their memory is not read any more. True when
  // there were none: all is sent. (The other side is told by a frame.)
  bool drop(uint64_t call);

  // Sends what send() left, until stop(). For one thread, which calls `tick` too: at once, and
  // again after as many nanoseconds as it returns.
  void run(FunctionRef<int64_t()> tick);
  // Has run() call `tick` soon, whatever it returned.
  void tick_now();
  // Nothing is sent any more, and no memory read.
  void stop();

 private:
  struct Part {
    uint64_t call = 0;
    uint32_t index = 0;
    Message::Part memory;
    size_t sent = 0;
  };

  // Gives the socket what it takes now; true when all of it.
  bool flush() MR_REQUIRES(mu_);
  // Sends a slot full of the first part, unless the ring has no room.
  void send_chunk() MR_REQUIRES(mu_);

  const OwnedFd& socket_;
  const Ref<SharedRing> ring_;

  Mutex mu_;
  CondVar changed_;
  bool stopped_ MR_GUARDED_BY(mu_) = false;
  bool tick_now_ MR_GUARDED_BY(mu_) = true;
  std::string unsent_ MR_GUARDED_BY(mu_);
  size_t unsent_from_ MR_GUARDED_BY(mu_) = 0;
  std::deque<Part> parts_ MR_GUARDED_BY(mu_);
  uint64_t copying_ MR_GUARDED_BY(mu_) = 0;  // the call whose memory is being read
  uint32_t next_slot_ MR_GUARDED_BY(mu_) = 0;
};

}  // namespace millrace
