#pragma once

#include <map>
#include <unordered_map>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/kernel/device.h"
#include "millrace/tensor/allocator.h"

namespace millrace {

// The allocator of a device whose kernels only enqueue. Freed blocks are kept by size and given out
// again at once, while work that uses them is still enqueued: what their next owner enqueues, on
// the same stream, comes later. A block that another stream uses carries that stream's event, and
// is given out again only once the event is done, or after `stream` has been told to wait for it.
// Thread-safe; memory is used in the order of `stream`.
class StreamAllocator final : public Allocator {
 public:
  // `raw` makes blocks and is slow. Both outlive the allocator.
  StreamAllocator(Allocator& raw, Stream& stream) : raw_(raw), stream_(stream) {}
  // Everything has been given back. Waits until nothing uses it.
  ~StreamAllocator() override;

  const char* name() const override { return raw_.name(); }
  MemorySpace space() const override { return raw_.space(); }
  // Tries, in this order: a block that nothing uses, a new one, a block that another stream uses,
  // and a new one after the whole cache was given back, for which it blocks.
  void* allocate(size_t bytes) override;
  void deallocate(void* data, size_t bytes) override;
  AllocatorStats stats() const override;
  void reset_peak() override;

  // The block at `data`, not freed yet, is used on another stream up to `event`.
  void keep_until(const void* data, Ref<Event> event);
  // Gives all that is cached back to the raw allocator, when the device is done with it.
  void trim();

 private:
  struct Block {
    void* data = nullptr;
    std::vector<Ref<Event>> used_until;  // of other streams
  };
  using Blocks = std::vector<Block>;

  void* give(Block block, size_t size) MR_REQUIRES(mu_);
  bool take_unused(Blocks& blocks, Block& out) MR_REQUIRES(mu_);
  bool take_after_waiting(Blocks& blocks, Block& out) MR_REQUIRES(mu_);

  Allocator& raw_;
  Stream& stream_;
  mutable Mutex mu_;
  std::map<size_t, Blocks> free_ MR_GUARDED_BY(mu_);  // by size
  std::unordered_map<const void*, Block> live_ MR_GUARDED_BY(mu_);
  AllocatorStats stats_ MR_GUARDED_BY(mu_);
};

}  // namespace millrace
