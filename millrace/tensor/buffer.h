#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "millrace/base/function.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/tensor/allocator.h"
#include "millrace/tensor/dtype.h"

namespace millrace {

// The memory behind one or more tensors, counted by reference. Elements of kString, kResource and
// kVariant buffers are constructed and destroyed by the buffer.
//
// Who holds the only reference to a buffer that is not borrowed may write to it; writable() says
// so.
class Buffer : public RefCounted {
 public:
  // A buffer of `count` elements, uninitialised for plain types and default-constructed for the
  // rest. RESOURCE_EXHAUSTED when the allocator has no room, INVALID_ARGUMENT when the size
  // overflows.
  static Result<Ref<Buffer>> allocate(DType dtype, int64_t count, Allocator& allocator);

  // A buffer over memory that somebody else owns, in `space`; `release` (may be empty) is called
  // when the last reference goes. The memory is never written through it.
  static Ref<Buffer> borrow(const void* data, size_t bytes, UniqueFunction<void()> release,
                            MemorySpace space = MemorySpace::kHost);

  // A buffer that owns memory made elsewhere: as borrow(), but it may be written when unique.
  static Ref<Buffer> own(void* data, size_t bytes, UniqueFunction<void()> release,
                         MemorySpace space = MemorySpace::kHost);

  const void* data() const { return data_; }
  void* mutable_data() { return data_; }
  size_t bytes() const { return bytes_; }
  MemorySpace space() const { return space_; }
  // Memory of somebody else, such as a fed array.
  bool borrowed() const { return borrowed_; }
  bool writable() const { return !borrowed_ && unique(); }
  // The allocator the memory came from; null for borrowed and foreign memory.
  Allocator* allocator() const { return allocator_; }
  // True while a Snapshot keeps the elements as they are.
  bool in_snapshot() const { return snapshots_.load(std::memory_order_acquire) != 0; }

 protected:
  Buffer(void* data, size_t bytes, MemorySpace space, bool borrowed, Allocator* allocator)
      : data_(data), bytes_(bytes), allocator_(allocator), space_(space), borrowed_(borrowed) {}

 private:
  friend class Snapshot;

  void* data_;
  size_t bytes_;
  Allocator* allocator_;
  MemorySpace space_;
  bool borrowed_;
  std::atomic<int32_t> snapshots_{0};
};

// Keeps the elements of a buffer as they are while it lives: a save that goes on beside training.
// It holds a reference, so who writes only to buffers of its own copies anyway; who updates a
// reference variable in place, although others see it, asks in_snapshot() and copies first. An
// update in place that began before is not waited for.
class Snapshot {
 public:
  explicit Snapshot(Ref<Buffer> buffer) : buffer_(std::move(buffer)) {
    if (buffer_) buffer_->snapshots_.fetch_add(1, std::memory_order_acq_rel);
  }
  Snapshot(Snapshot&& other) noexcept = default;
  Snapshot& operator=(Snapshot&&) = delete;
  ~Snapshot() {
    if (buffer_) buffer_->snapshots_.fetch_sub(1, std::memory_order_acq_rel);
  }

 private:
  Ref<Buffer> buffer_;
};

}  // namespace millrace
