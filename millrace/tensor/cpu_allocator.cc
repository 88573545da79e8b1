#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <new>
#include <utility>

#include "millrace/base/env.h"
#include "millrace/base/mutex.h"
#include "millrace/tensor/allocator.h"
#include "millrace/tensor/size_class.h"

// Three levels. Small blocks (up to 32 KiB of payload) are kept in lists of the thread, without
// locks; a list that runs full or empty exchanges half its length with the shared list of its size
// class. Larger blocks go to one shared cache, for fresh memory costs a page fault per page,
// several times what writing the page costs. When it is over its budget the cache drops blocks that
// have not been asked for in a long while: a program that does the same again and again, such as
// steps of training, keeps all that a step needs. Sizes below kMappedBytes come from malloc, the
// others straight from the kernel, on huge pages where it has them.
//
// Every block is an allocation of its own, so it can be given back by any thread at any level.

#if defined(MILLRACE_ADDRESS_SANITIZER) || defined(MILLRACE_THREAD_SANITIZER)
#define MR_BYPASS_CACHES 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define MR_BYPASS_CACHES 1
#endif
#endif
#ifndef MR_BYPASS_CACHES
#define MR_BYPASS_CACHES 0
#endif

namespace millrace {
namespace {

// Under a sanitizer every block is made and freed, so that it sees who uses freed memory.
constexpr bool kBypassCaches = MR_BYPASS_CACHES != 0;

constexpr size_t kMaxBytes = size_t{1} << 62;
constexpr int kNumSmallClasses = size_class(kBlockHeader + 32 * 1024) + 1;
constexpr size_t kMappedBytes = size_t{1} << 20;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSharedBytesPerSmallClass = size_t{4} << 20;
// What the cache of large blocks holds for good, and how often such blocks come and go before one
// beyond that is given back. Of the machine's memory the former is an eighth at most, and all it
// holds a quarter.
constexpr size_t kMaxLargeCache = size_t{1} << 30;
constexpr int64_t kKeptFor = int64_t{1} << 16;
// A thread tells the shared count of bytes in use when its own is off by more than this.
constexpr int64_t kCountSlack = 64 * 1024;

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// How many blocks a thread keeps of a class.
constexpr std::array<int, kNumSmallClasses> kThreadListLimits = [] {
  std::array<int, kNumSmallClasses> limits{};
  for (int i = 0; i < kNumSmallClasses; ++i) {
    limits[static_cast<size_t>(i)] =
        static_cast<int>(std::clamp<size_t>(128 * 1024 / class_bytes(i), 4, 128));
  }
  return limits;
}();
constexpr int thread_list_limit(int index) { return kThreadListLimits[static_cast<size_t>(index)]; }

// What the memory of a free block holds.
struct FreeBlock {
  FreeBlock* next = nullptr;
  FreeBlock* next_chain = nullptr;  // the first of a chain in a SharedList only
  int64_t chain_length = 0;         // likewise
  FreeBlock* previous = nullptr;    // large blocks only, as the rest
  FreeBlock* newer = nullptr;
  FreeBlock* older = nullptr;
  int64_t freed_at = 0;
  int index = 0;
};
static_assert(sizeof(FreeBlock) <= class_bytes(0));

size_t round_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

void* map_block(size_t bytes) {
  static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  bytes = round_up(bytes, page);
  const bool huge = bytes >= 2 * kHugePage;
  const size_t mapped = huge ? bytes + kHugePage : bytes;
  void* const start =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return nullptr;
  if (!huge) return start;
  char* const begin = static_cast<char*>(start);
  const size_t skip =
      round_up(reinterpret_cast<size_t>(begin), kHugePage) - reinterpret_cast<size_t>(begin);
  if (skip > 0) munmap(begin, skip);
  if (skip < kHugePage) munmap(begin + skip + bytes, kHugePage - skip);
  madvise(begin + skip, bytes, MADV_HUGEPAGE);
  return begin + skip;
}

void* make_block(int index) {
  const size_t bytes = class_bytes(index);
  if (bytes >= kMappedBytes && !kBypassCaches) return map_block(bytes);
  void* block = nullptr;
  return posix_memalign(&block, Allocator::kAlignment, bytes) == 0 ? block : nullptr;
}

void free_block(void* block, int index) {
  const size_t bytes = class_bytes(index);
  if (bytes >= kMappedBytes && !kBypassCaches) {
    munmap(block, round_up(bytes, static_cast<size_t>(sysconf(_SC_PAGESIZE))));
  } else {
    free(block);
  }
}

// Bytes of memory that this process may hope for: the machine's, or its control group's if less.
size_t machine_memory() {
  size_t bytes =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (FILE* file = fopen("/sys/fs/cgroup/memory.max", "re"); file != nullptr) {
    unsigned long long limit;
    if (fscanf(file, "%llu", &limit) == 1) bytes = std::min<size_t>(bytes, limit);
    fclose(file);
  }
  return bytes;
}

// Blocks of one small class that no thread holds, in the chains that threads put in: to walk a
// chain costs a cache miss for each of its blocks.
class SharedList {
 public:
  // A chain of blocks, null when there is none. Its chain_length is right.
  FreeBlock* take() {
    MutexLock lock(mu_);
    FreeBlock* const chain = head_;
    if (chain == nullptr) return nullptr;
    head_ = chain->next_chain;
    count_ -= chain->chain_length;
    return chain;
  }

  // Takes in a chain of `length` blocks, or frees it where that would be too much.
  void put(FreeBlock* chain, int64_t length, int index) {
    if (chain == nullptr) return;
    {
      MutexLock lock(mu_);
      const auto limit = static_cast<int64_t>(kSharedBytesPerSmallClass / class_bytes(index));
      if (count_ + length <= limit) {
        chain->next_chain = head_;
        chain->chain_length = length;
        head_ = chain;
        count_ += length;
        return;
      }
    }
    while (chain != nullptr) {
      FreeBlock* const next = chain->next;
      free_block(chain, index);
      chain = next;
    }
  }

  int64_t count() const {
    MutexLock lock(mu_);
    return count_;
  }

  Mutex& mutex() { return mu_; }

 private:
  mutable Mutex mu_;
  FreeBlock* head_ MR_GUARDED_BY(mu_) = nullptr;
  int64_t count_ MR_GUARDED_BY(mu_) = 0;
};

// Large blocks, newest first, by class and altogether.
class LargeCache {
 public:
  explicit LargeCache(size_t machine_bytes)
      : budget_(std::min(kMaxLargeCache, machine_bytes / 8)), most_(machine_bytes / 4) {}

  void* take(int index) {
    MutexLock lock(mu_);
    ++now_;
    FreeBlock* const block = by_class_[index];
    if (block != nullptr) unlink(block);
    return block;
  }

  void put(void* memory, int index) {
    if (class_bytes(index) > most_) {
      free_block(memory, index);
      return;
    }
    auto* const block = new (memory) FreeBlock;
    FreeBlock* dropped = nullptr;
    {
      MutexLock lock(mu_);
      block->index = index;
      block->freed_at = ++now_;
      block->next = by_class_[index];
      if (block->next != nullptr) block->next->previous = block;
      by_class_[index] = block;
      block->older = newest_;
      (newest_ != nullptr ? newest_->newer : oldest_) = block;
      newest_ = block;
      bytes_ += class_bytes(index);
      dropped = drop_to(most_, drop_to(budget_, nullptr, now_ - kKeptFor), now_);
    }
    free_chain(dropped);
  }

  void clear() {
    FreeBlock* dropped;
    {
      MutexLock lock(mu_);
      dropped = drop_to(0, nullptr, now_);
    }
    free_chain(dropped);
  }

  size_t bytes() const {
    MutexLock lock(mu_);
    return bytes_;
  }

  Mutex& mutex() { return mu_; }

 private:
  void unlink(FreeBlock* block) MR_REQUIRES(mu_) {
    (block->previous != nullptr ? block->previous->next : by_class_[block->index]) = block->next;
    if (block->next != nullptr) block->next->previous = block->previous;
    (block->newer != nullptr ? block->newer->older : newest_) = block->older;
    (block->older != nullptr ? block->older->newer : oldest_) = block->newer;
    bytes_ -= class_bytes(block->index);
  }

  // Unlinks the oldest blocks, of those freed before that time or then, until at most `budget`
  // bytes are left; returns them chained by `next`, before those that were dropped already.
  FreeBlock* drop_to(size_t budget, FreeBlock* dropped, int64_t until) MR_REQUIRES(mu_) {
    while (bytes_ > budget && oldest_->freed_at <= until) {
      FreeBlock* const block = oldest_;
      unlink(block);
      block->next = dropped;
      dropped = block;
    }
    return dropped;
  }

  static void free_chain(FreeBlock* block) {
    while (block != nullptr) {
      FreeBlock* const next = block->next;
      free_block(block, block->index);
      block = next;
    }
  }

  const size_t budget_, most_;
  mutable Mutex mu_;
  int64_t now_ MR_GUARDED_BY(mu_) = 0;  // how often a block has come or gone
  FreeBlock* by_class_[kNumSizeClasses] MR_GUARDED_BY(mu_) = {};
  FreeBlock* newest_ MR_GUARDED_BY(mu_) = nullptr;
  FreeBlock* oldest_ MR_GUARDED_BY(mu_) = nullptr;
  size_t bytes_ MR_GUARDED_BY(mu_) = 0;
};

// A number that one thread writes and others may read.
class OwnedCounter {
 public:
  int64_t get() const { return value_.load(std::memory_order_relaxed); }
  void set(int64_t value) { value_.store(value, std::memory_order_relaxed); }
  void add(int64_t n) { set(get() + n); }
  void raise_to(int64_t n) {
    if (n > get()) set(n);
  }

 private:
  std::atomic<int64_t> value_{0};
};

// What a thread keeps to itself.
struct ThreadCache {
  struct List {
    FreeBlock* head = nullptr;
    OwnedCounter count;
  };
  List lists[kNumSmallClasses];
  OwnedCounter num_allocations;
  OwnedCounter largest;
  OwnedCounter in_use;       // not yet in the shared count
  OwnedCounter peak_in_use;  // the highest in_use since it was last moved to the shared count
  ThreadCache* next = nullptr;
  ThreadCache* previous = nullptr;
};

void raise_to(std::atomic<int64_t>& target, int64_t value) {
  int64_t seen = target.load(std::memory_order_relaxed);
  while (seen < value && !target.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

class CpuAllocator final : public Allocator {
 public:
  CpuAllocator()
      : machine_bytes_(machine_memory()),
        limit_(env_int("MILLRACE_CPU_MEMORY_LIMIT", kNoLimit, 1, kNoLimit)),
        large_(machine_bytes_) {}

  const char* name() const override { return "cpu"; }
  MemorySpace space() const override { return MemorySpace::kHost; }
  void* allocate(size_t bytes) override;
  void deallocate(void* data, size_t bytes) override;
  AllocatorStats stats() const override;
  void reset_peak() override;

  void retire(ThreadCache* cache);

  // Around a fork: the child gets no lock that a thread of the parent holds, so it can free what it
  // inherits.
  void lock_all() MR_NO_THREAD_SAFETY_ANALYSIS {
    threads_mu_.lock();
    for (SharedList& list : shared_) list.mutex().lock();
    large_.mutex().lock();
  }
  void unlock_all() MR_NO_THREAD_SAFETY_ANALYSIS {
    large_.mutex().unlock();
    for (SharedList& list : shared_) list.mutex().unlock();
    threads_mu_.unlock();
  }

 private:
  // Null after the thread's cache was given up at its end.
  ThreadCache* thread_cache();
  ThreadCache* add_thread();
  void* refill(ThreadCache& cache, int index);
  void spill(ThreadCache& cache, int index);
  void* allocate_shared(int index);
  void deallocate_shared(void* data, int index);
  bool count_allocation(ThreadCache* cache, size_t bytes);
  void count_deallocation(ThreadCache* cache, size_t bytes);
  void move_count(ThreadCache& cache);

  const size_t machine_bytes_;
  const int64_t limit_;
  SharedList shared_[kNumSmallClasses];
  LargeCache large_;

  // Without what the threads' own counters add.
  std::atomic<int64_t> in_use_{0};
  std::atomic<int64_t> peak_{0};
  std::atomic<int64_t> num_allocations_{0};
  std::atomic<int64_t> largest_{0};

  mutable Mutex threads_mu_;
  ThreadCache* threads_ MR_GUARDED_BY(threads_mu_) = nullptr;
};

CpuAllocator& the_allocator() {
  // Never destroyed: threads and static objects may free tensors at any moment of the exit.
  static CpuAllocator* const allocator = [] {
    pthread_atfork([] { the_allocator().lock_all(); }, [] { the_allocator().unlock_all(); },
                   [] { the_allocator().unlock_all(); });
    return new CpuAllocator;
  }();
  return *allocator;
}

thread_local ThreadCache* t_cache = nullptr;
thread_local bool t_ended = false;

// Gives the thread's blocks back when it ends. Apart from the pointer, so that the fast path reads
// a thread-local that needs no initialisation check.
struct ThreadEnd {
  ~ThreadEnd() {
    t_ended = true;
    if (t_cache != nullptr) the_allocator().retire(std::exchange(t_cache, nullptr));
  }
};

ThreadCache* CpuAllocator::thread_cache() {
  if (t_cache != nullptr) [[likely]]
    return t_cache;
  return t_ended ? nullptr : add_thread();
}

ThreadCache* CpuAllocator::add_thread() {
  static thread_local ThreadEnd end;
  (void)&end;
  auto* const cache = new ThreadCache;
  MutexLock lock(threads_mu_);
  cache->next = threads_;
  if (threads_ != nullptr) threads_->previous = cache;
  threads_ = cache;
  return t_cache = cache;
}

void CpuAllocator::retire(ThreadCache* cache) {
  for (int i = 0; i < kNumSmallClasses; ++i) {
    shared_[i].put(cache->lists[i].head, cache->lists[i].count.get(), i);
  }
  {
    MutexLock lock(threads_mu_);
    (cache->previous != nullptr ? cache->previous->next : threads_) = cache->next;
    if (cache->next != nullptr) cache->next->previous = cache->previous;
    move_count(*cache);
    num_allocations_.fetch_add(cache->num_allocations.get(), std::memory_order_relaxed);
    raise_to(largest_, cache->largest.get());
  }
  delete cache;
}

// Moves a thread's part of the bytes in use to the shared count.
void CpuAllocator::move_count(ThreadCache& cache) {
  const int64_t before = in_use_.fetch_add(cache.in_use.get(), std::memory_order_relaxed);
  raise_to(peak_, before + cache.peak_in_use.get());
  cache.in_use.set(0);
  cache.peak_in_use.set(0);
}

// False when the limit forbids it.
bool CpuAllocator::count_allocation(ThreadCache* cache, size_t bytes) {
  const auto n = static_cast<int64_t>(bytes);
  if (limit_ != kNoLimit || cache == nullptr) {
    const int64_t now = in_use_.fetch_add(n, std::memory_order_relaxed) + n;
    if (now > limit_) {
      in_use_.fetch_sub(n, std::memory_order_relaxed);
      return false;
    }
    raise_to(peak_, now);
  } else {
    cache->in_use.add(n);
    cache->peak_in_use.raise_to(cache->in_use.get());
    if (cache->in_use.get() > kCountSlack) [[unlikely]]
      move_count(*cache);
  }
  if (cache != nullptr) {
    cache->num_allocations.add(1);
    cache->largest.raise_to(n);
  } else {
    num_allocations_.fetch_add(1, std::memory_order_relaxed);
    raise_to(largest_, n);
  }
  return true;
}

void CpuAllocator::count_deallocation(ThreadCache* cache, size_t bytes) {
  const auto n = static_cast<int64_t>(bytes);
  if (limit_ != kNoLimit || cache == nullptr) {
    in_use_.fetch_sub(n, std::memory_order_relaxed);
    return;
  }
  cache->in_use.add(-n);
  if (cache->in_use.get() < -kCountSlack) [[unlikely]]
    move_count(*cache);
}

void* CpuAllocator::allocate(size_t bytes) {
  if (bytes > machine_bytes_ || bytes > kMaxBytes) [[unlikely]]
    return nullptr;
  bytes = std::max<size_t>(bytes, 1);
  ThreadCache* const cache = thread_cache();
  if (!count_allocation(cache, bytes)) [[unlikely]]
    return nullptr;
  const int index = size_class(bytes);
  void* block;
  if (index < kNumSmallClasses && cache != nullptr && !kBypassCaches) [[likely]] {
    ThreadCache::List& list = cache->lists[index];
    if (FreeBlock* const head = list.head; head != nullptr) [[likely]] {
      list.head = head->next;
      list.count.add(-1);
      __builtin_prefetch(list.head, /*rw=*/1);  // the next to be handed out
      return head;
    }
    block = refill(*cache, index);
  } else {
    block = allocate_shared(index);
  }
  if (block == nullptr) [[unlikely]] {
    large_.clear();
    block = make_block(index);
    if (block == nullptr) count_deallocation(cache, bytes);
  }
  return block;
}

void CpuAllocator::deallocate(void* data, size_t bytes) {
  bytes = std::max<size_t>(bytes, 1);
  ThreadCache* const cache = thread_cache();
  count_deallocation(cache, bytes);
  const int index = size_class(bytes);
  if (index < kNumSmallClasses && cache != nullptr && !kBypassCaches) [[likely]] {
    ThreadCache::List& list = cache->lists[index];
    auto* const block = static_cast<FreeBlock*>(data);
    block->next = list.head;
    list.head = block;
    list.count.add(1);
    if (list.count.get() > thread_list_limit(index)) [[unlikely]]
      spill(*cache, index);
  } else {
    deallocate_shared(data, index);
  }
}

// One block to use, the rest of a chain to the thread's list, which is empty.
void* CpuAllocator::refill(ThreadCache& cache, int index) {
  FreeBlock* const first = shared_[index].take();
  if (first == nullptr) return make_block(index);
  ThreadCache::List& list = cache.lists[index];
  list.head = first->next;
  list.count.set(first->chain_length - 1);
  return first;
}

// Half of a full list to the other threads.
void CpuAllocator::spill(ThreadCache& cache, int index) {
  ThreadCache::List& list = cache.lists[index];
  const int64_t keep = list.count.get() / 2;
  FreeBlock* last = list.head;
  for (int64_t i = 1; i < keep; ++i) last = last->next;
  FreeBlock* const chain = std::exchange(last->next, nullptr);
  const int64_t length = list.count.get() - keep;
  list.count.set(keep);
  shared_[index].put(chain, length, index);
}

void* CpuAllocator::allocate_shared(int index) {
  void* block = nullptr;
  if (kBypassCaches) return make_block(index);
  if (index < kNumSmallClasses) {
    FreeBlock* const first = shared_[index].take();
    if (first != nullptr) shared_[index].put(first->next, first->chain_length - 1, index);
    block = first;
  } else {
    block = large_.take(index);
  }
  return block != nullptr ? block : make_block(index);
}

void CpuAllocator::deallocate_shared(void* data, int index) {
  if (kBypassCaches) {
    free_block(data, index);
  } else if (index < kNumSmallClasses) {
    shared_[index].put(new (data) FreeBlock, 1, index);
  } else {
    large_.put(data, index);
  }
}

AllocatorStats CpuAllocator::stats() const {
  AllocatorStats stats;
  stats.bytes_cached = static_cast<int64_t>(large_.bytes());
  for (int i = 0; i < kNumSmallClasses; ++i) {
    stats.bytes_cached += shared_[i].count() * static_cast<int64_t>(class_bytes(i));
  }
  MutexLock lock(threads_mu_);
  stats.bytes_in_use = in_use_.load(std::memory_order_relaxed);
  stats.num_allocations = num_allocations_.load(std::memory_order_relaxed);
  stats.largest_allocation = largest_.load(std::memory_order_relaxed);
  int64_t peak = stats.bytes_in_use;
  for (const ThreadCache* cache = threads_; cache != nullptr; cache = cache->next) {
    stats.bytes_in_use += cache->in_use.get();
    peak += cache->peak_in_use.get();
    stats.num_allocations += cache->num_allocations.get();
    stats.largest_allocation = std::max(stats.largest_allocation, cache->largest.get());
    for (int i = 0; i < kNumSmallClasses; ++i) {
      stats.bytes_cached += cache->lists[i].count.get() * static_cast<int64_t>(class_bytes(i));
    }
  }
  stats.peak_bytes_in_use = std::max({peak_.load(std::memory_order_relaxed), peak, int64_t{0}});
  return stats;
}

void CpuAllocator::reset_peak() {
  MutexLock lock(threads_mu_);
  peak_.store(0, std::memory_order_relaxed);
  // A thread that allocates at this moment may put its old peak back: off by kCountSlack at most.
  for (ThreadCache* cache = threads_; cache != nullptr; cache = cache->next) {
    cache->peak_in_use.set(cache->in_use.get());
  }
}

}  // namespace

Allocator& cpu_allocator() { return the_allocator(); }

}  // namespace millrace
