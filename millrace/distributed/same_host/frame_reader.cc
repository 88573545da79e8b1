#include "millrace/distributed/same_host/frame_reader.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "millrace/base/clock.h"
#include "millrace/base/thread_pool.h"

namespace millrace {
namespace {

constexpr size_t kBuffer = size_t{64} << 10;
// About what being woken costs. Longer, and the processor had better do something else.
constexpr int64_t kAwakeNs = 20'000;
// A wait that was slept through is that much longer for it.
constexpr int64_t kWakingNs = 30'000;

bool can_poll() {
  static const bool several = usable_cpus() > 1;
  return several;
}

}  // namespace

Result<FrameReader::Frame> FrameReader::next() {
  MR_TRY(fill(sizeof(FrameHead)));
  Frame frame;
  std::memcpy(&frame.head, buffer_.data() + begin_, sizeof frame.head);
  if (frame.head.body > kMaxBody) {
    return invalid_argument("expected a frame of at most ", kMaxBody, " bytes, got ",
                            frame.head.body);
  }
  const size_t size = sizeof(FrameHead) + frame.head.body;
  MR_TRY(fill(size));
  frame.body = std::string_view(buffer_).substr(begin_ + sizeof(FrameHead), frame.head.body);
  begin_ += size;
  return frame;
}

Status FrameReader::fill(size_t size) {
  if (end_ - begin_ >= size) return ok_status();
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  // A large frame was read: its memory is not kept for small ones.
  if (buffer_.size() > kBuffer && size <= kBuffer && end_ <= kBuffer) {
    buffer_.resize(kBuffer);
    buffer_.shrink_to_fit();
  }
  const int64_t start = monotonic_nanos();
  const int64_t awake_ns = waited_ns_ < kAwakeNs + kWakingNs && can_poll() ? kAwakeNs : 0;
  int flags = MSG_DONTWAIT;
  while (end_ < size) {
    // Memory follows what really came: a head alone does not make us take a gigabyte.
    if (buffer_.size() - end_ < kBuffer / 2) {
      buffer_.resize(std::max(kBuffer, std::min(2 * buffer_.size(), size + kBuffer)));
    }
    const ssize_t got = recv(socket_.get(), buffer_.data() + end_, buffer_.size() - end_, flags);
    if (got > 0) {
      end_ += static_cast<size_t>(got);
    } else if (got == 0) {
      return unavailable("the connection was closed");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (monotonic_nanos() - start >= awake_ns) flags = 0;
    } else if (errno != EINTR) {
      return unavailable("the connection is broken: ", strerror(errno));
    }
  }
  waited_ns_ = monotonic_nanos() - start;
  return ok_status();
}

}  // namespace millrace
