#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "millrace/base/ref.h"
#include "millrace/distributed/same_host/local_socket.h"

namespace millrace {

// Memory that one process fills and another empties, a slot at a time, so that both copy at once.
// Which slot holds what is said elsewhere, on the socket; the ring only says which slots are free.
// Slots are filled in turn. The other side is not trusted: it can spoil what it receives or sends,
// and nothing else (the memory cannot shrink under us).
class SharedRing : public RefCounted {
 public:
  static constexpr uint32_t kSlots = 4;
  static constexpr size_t kSlotBytes = size_t{1} << 20;

  // The side that fills makes it; the other side gets fd().
  static Result<Ref<SharedRing>> create();
  // INVALID_ARGUMENT when the descriptor is not a ring's.
  static Result<Ref<SharedRing>> open(OwnedFd fd);

  const OwnedFd& fd() const { return fd_; }

  // For the side that fills: true when `slot` is free, waiting for at most `timeout_ns`.
  bool wait_free(uint32_t slot, int64_t timeout_ns);
  // The memory of a slot; who fills it has seen it free, who empties it was told that it is full.
  char* slot(uint32_t slot);
  void mark_full(uint32_t slot);
  // For the side that empties: gives the slot back.
  void mark_free(uint32_t slot);

 private:
  struct Header;

  SharedRing(OwnedFd fd, void* memory) : fd_(std::move(fd)), memory_(memory) {}
  ~SharedRing() override;
  Header& header();

  const OwnedFd fd_;
  void* const memory_;
};

}  // namespace millrace
