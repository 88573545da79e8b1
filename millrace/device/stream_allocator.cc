#include "millrace/device/stream_allocator.h"

#include <algorithm>

#include "millrace/tensor/size_class.h"

namespace millrace {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 62;

size_t block_size(size_t bytes) { return class_bytes(size_class(std::max<size_t>(bytes, 1))); }

}  // namespace

StreamAllocator::~StreamAllocator() {
  trim();
  MutexLock lock(mu_);
  MR_CHECK(live_.empty());
}

void* StreamAllocator::allocate(size_t bytes) {
  if (bytes > kMaxBytes) return nullptr;
  const size_t size = block_size(bytes);
  {
    MutexLock lock(mu_);
    Blocks& blocks = free_[size];
    Block block;
    if (take_unused(blocks, block)) return give(std::move(block), size);
    block.data = raw_.allocate(size);
    if (block.data != nullptr || take_after_waiting(blocks, block)) {
      return give(std::move(block), size);
    }
  }
  trim();
  MutexLock lock(mu_);
  Block block;
  block.data = raw_.allocate(size);
  return block.data == nullptr ? nullptr : give(std::move(block), size);
}

void* StreamAllocator::give(Block block, size_t size) {
  void* data = block.data;
  block.used_until.clear();
  live_.emplace(data, std::move(block));
  const int64_t bytes = static_cast<int64_t>(size);
  ++stats_.num_allocations;
  stats_.bytes_in_use += bytes;
  stats_.peak_bytes_in_use = std::max(stats_.peak_bytes_in_use, stats_.bytes_in_use);
  stats_.largest_allocation = std::max(stats_.largest_allocation, bytes);
  return data;
}

bool StreamAllocator::take_unused(Blocks& blocks, Block& out) {
  for (size_t i = blocks.size(); i-- > 0;) {
    std::erase_if(blocks[i].used_until, [](const Ref<Event>& event) { return event->done(); });
    if (!blocks[i].used_until.empty()) continue;
    std::swap(blocks[i], blocks.back());
    out = std::move(blocks.back());
    blocks.pop_back();
    return true;
  }
  return false;
}

bool StreamAllocator::take_after_waiting(Blocks& blocks, Block& out) {
  if (blocks.empty()) return false;
  for (const Ref<Event>& event : blocks.front().used_until) {
    if (!stream_.wait_for(*event).ok()) return false;
  }
  out = std::move(blocks.front());
  blocks.erase(blocks.begin());
  return true;
}

void StreamAllocator::deallocate(void* data, size_t bytes) {
  const size_t size = block_size(bytes);
  MutexLock lock(mu_);
  auto it = live_.find(data);
  MR_CHECK(it != live_.end());
  free_[size].push_back(std::move(it->second));
  live_.erase(it);
  stats_.bytes_in_use -= static_cast<int64_t>(size);
}

void StreamAllocator::keep_until(const void* data, Ref<Event> event) {
  MutexLock lock(mu_);
  auto it = live_.find(data);
  MR_CHECK(it != live_.end());
  it->second.used_until.push_back(std::move(event));
}

void StreamAllocator::trim() {
  std::map<size_t, Blocks> unused;
  {
    MutexLock lock(mu_);
    unused.swap(free_);
  }
  // What was cached by now is no longer used after this.
  if (Result<Ref<Event>> end = stream_.record(); end.ok()) static_cast<void>((*end)->wait());
  for (auto& [size, blocks] : unused) {
    for (Block& block : blocks) {
      for (const Ref<Event>& event : block.used_until) static_cast<void>(event->wait());
      raw_.deallocate(block.data, size);
    }
  }
}

AllocatorStats StreamAllocator::stats() const {
  MutexLock lock(mu_);
  AllocatorStats stats = stats_;
  for (const auto& [size, blocks] : free_) {
    stats.bytes_cached += static_cast<int64_t>(size * blocks.size());
  }
  return stats;
}

void StreamAllocator::reset_peak() {
  MutexLock lock(mu_);
  stats_.peak_bytes_in_use = stats_.bytes_in_use;
}

}  // namespace millrace
