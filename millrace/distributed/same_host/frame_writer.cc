#include "millrace/distributed/same_host/frame_writer.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace millrace {
namespace {

// How long run() waits for the other side before it looks whether it was stopped.
constexpr int kPatienceMs = 50;

}  // namespace

void FrameWriter::send(uint64_t call, const std::string& frame, const Message& message) {
  MutexLock lock(mu_);
  if (stopped_) return;
  unsent_ += frame;
  bool left = !flush();
  for (size_t i = 0; i < message.parts.size(); ++i) {
    if (message.parts[i].size <= kInlinePart) continue;
    parts_.push_back({call, static_cast<uint32_t>(i), message.parts[i], 0});
    left = true;
  }
  if (left) changed_.notify_all();
}

bool FrameWriter::flush() {
  while (unsent_from_ < unsent_.size()) {
    const ssize_t sent = ::send(socket_.get(), unsent_.data() + unsent_from_,
                                unsent_.size() - unsent_from_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
      unsent_from_ += static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return false;
    } else if (errno != EINTR) {
      break;  // the other side is gone, which who reads will notice
    }
  }
  unsent_.clear();
  unsent_from_ = 0;
  return true;
}

bool FrameWriter::drop(uint64_t call) {
  MutexLock lock(mu_);
  while (copying_ == call) changed_.wait(mu_);
  return std::erase_if(parts_, [&](const Part& part) { return part.call == call; }) == 0;
}

void FrameWriter::send_chunk() {
  const uint32_t slot = next_slot_;
  mu_.unlock();
  const bool room = ring_->wait_free(slot, int64_t{kPatienceMs} * 1'000'000);
  mu_.lock();
  if (!room || stopped_ || parts_.empty()) return;
  const Part part = parts_.front();
  const size_t size = std::min(part.memory.size - part.sent, SharedRing::kSlotBytes);
  copying_ = part.call;
  mu_.unlock();
  std::memcpy(ring_->slot(slot), static_cast<const char*>(part.memory.data()) + part.sent, size);
  mu_.lock();
  // The part is still there: drop() waits for the end of the copy.
  copying_ = 0;
  changed_.notify_all();
  if (stopped_) return;
  ring_->mark_full(slot);
  next_slot_ = (slot + 1) % SharedRing::kSlots;
  unsent_ += chunk_frame(part.call, {part.index, slot, part.sent, size});
  flush();
  parts_.front().sent += size;
  if (parts_.front().sent == part.memory.size) parts_.pop_front();
}

void FrameWriter::tick_now() {
  MutexLock lock(mu_);
  tick_now_ = true;
  changed_.notify_all();
}

void FrameWriter::run(FunctionRef<int64_t()> tick) {
  Deadline next_tick;
  MutexLock lock(mu_);
  while (!stopped_) {
    if (std::exchange(tick_now_, false) || next_tick.expired()) {
      lock.unlock();
      next_tick = Deadline::after_nanos(tick());
      lock.lock();
    } else if (!flush()) {
      lock.unlock();
      pollfd ready = {socket_.get(), POLLOUT, 0};
      poll(&ready, 1, kPatienceMs);
      lock.lock();
    } else if (!parts_.empty()) {
      send_chunk();
    } else {
      changed_.wait_until(mu_, next_tick);
    }
  }
}

void FrameWriter::stop() {
  MutexLock lock(mu_);
  stopped_ = true;
  changed_.notify_all();
  while (copying_ != 0) changed_.wait(mu_);
  parts_.clear();
}

}  // namespace millrace
