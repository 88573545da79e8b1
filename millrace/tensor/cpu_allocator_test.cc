// test-labels: threads
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "millrace/tensor/allocator.h"
#include "millrace/tensor/size_class.h"
#include "millrace/tensor/tensor.h"

namespace millrace {
namespace {

#if defined(MILLRACE_ADDRESS_SANITIZER) || defined(MILLRACE_THREAD_SANITIZER)
constexpr bool kCaching = false;
#else
constexpr bool kCaching = true;
#endif

TEST(SizeClassTest, BlocksAreLargeEnoughAndNotMuchLarger) {
  size_t last = 0;
  for (int i = 0; i < kNumSizeClasses; ++i) {
    EXPECT_GT(class_bytes(i), last);
    EXPECT_EQ(class_bytes(i) % 64, 0u);
    EXPECT_EQ(size_class(class_bytes(i)), i);
    EXPECT_EQ(size_class(last + 1), i);
    last = class_bytes(i);
  }
  for (size_t bytes = 1; bytes < 100000; ++bytes) {
    const size_t block = class_bytes(size_class(bytes));
    ASSERT_GE(block, bytes);
    ASSERT_LE(block, bytes + bytes / 4 + 128);
  }
  EXPECT_EQ(class_bytes(size_class(64 + (1 << 20))), 64u + (1 << 20));
  EXPECT_LT(size_class(size_t{1} << 62), kNumSizeClasses);
}

TEST(CpuAllocatorTest, EverySizeIsAlignedAndUsable) {
  Allocator& allocator = cpu_allocator();
  for (const size_t bytes : {0, 1, 63, 64, 65, 4096, 32 << 10, (32 << 10) + 65, 1 << 20,
                             (1 << 20) + 1, 5 << 20, 33 << 20}) {
    void* const data = allocator.allocate(bytes);
    ASSERT_NE(data, nullptr) << bytes;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % Allocator::kAlignment, 0u) << bytes;
    std::memset(data, 0xab, bytes);
    allocator.deallocate(data, bytes);
  }
}

TEST(CpuAllocatorTest, HugeSizesAreRefused) {
  const int64_t before = cpu_allocator().stats().bytes_in_use;
  for (const size_t bytes : {~size_t{0}, size_t{1} << 63, (size_t{1} << 62) + 1, size_t{1} << 50}) {
    EXPECT_EQ(cpu_allocator().allocate(bytes), nullptr) << bytes;
  }
  EXPECT_EQ(cpu_allocator().stats().bytes_in_use, before);
}

TEST(CpuAllocatorTest, FreedBlocksAreReused) {
  if (!kCaching) GTEST_SKIP() << "caches are off under a sanitizer";
  for (const size_t bytes : {100, 20000, 100000, 3 << 20}) {
    void* const first = cpu_allocator().allocate(bytes);
    cpu_allocator().deallocate(first, bytes);
    EXPECT_GE(cpu_allocator().stats().bytes_cached, static_cast<int64_t>(bytes));
    void* const second = cpu_allocator().allocate(bytes);
    EXPECT_EQ(second, first) << bytes;
    cpu_allocator().deallocate(second, bytes);
  }
}

TEST(CpuAllocatorTest, StatsAreExactForOneThread) {
  Allocator& allocator = cpu_allocator();
  allocator.reset_peak();
  const AllocatorStats before = allocator.stats();
  EXPECT_EQ(before.peak_bytes_in_use, before.bytes_in_use);
  std::vector<void*> blocks;
  for (int i = 0; i < 1000; ++i) blocks.push_back(allocator.allocate(1000));
  EXPECT_EQ(allocator.stats().bytes_in_use, before.bytes_in_use + 1000000);
  for (void* block : blocks) allocator.deallocate(block, 1000);
  const AllocatorStats after = allocator.stats();
  EXPECT_EQ(after.bytes_in_use, before.bytes_in_use);
  EXPECT_EQ(after.peak_bytes_in_use, before.bytes_in_use + 1000000);
  EXPECT_EQ(after.num_allocations, before.num_allocations + 1000);
  EXPECT_GE(after.largest_allocation, 1000);
  allocator.reset_peak();
  EXPECT_EQ(allocator.stats().peak_bytes_in_use, after.bytes_in_use);
}

TEST(CpuAllocatorTest, CachesAreBounded) {
  Allocator& allocator = cpu_allocator();
  std::vector<void*> blocks;
  for (int i = 0; i < 40000; ++i) blocks.push_back(allocator.allocate(1024));
  for (void* block : blocks) allocator.deallocate(block, 1024);
  const int64_t first = allocator.stats().bytes_cached;
  for (void*& block : blocks) block = allocator.allocate(1024);
  for (void* block : blocks) allocator.deallocate(block, 1024);
  EXPECT_EQ(allocator.stats().bytes_cached, first);
  EXPECT_LT(first, int64_t{2} << 30);
}

// More than the cache holds for good, but a program's steps need it again and again.
TEST(CpuAllocatorTest, WhatIsAskedForAgainIsKept) {
  if (!kCaching) GTEST_SKIP() << "caches are off under a sanitizer";
  constexpr size_t kBytes = size_t{90} << 20, kLimit = size_t{1} << 30;
  constexpr int kBlocks = 14;
  static_assert(kBlocks * kBytes > kLimit);
  const auto pages = static_cast<size_t>(sysconf(_SC_PHYS_PAGES));
  if (pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) < 8 * kBlocks * kBytes) {
    GTEST_SKIP() << "too little memory to keep so much";
  }
  Allocator& allocator = cpu_allocator();
  std::vector<void*> first, second;
  for (int i = 0; i < kBlocks; ++i) first.push_back(allocator.allocate(kBytes));
  for (void* block : first) allocator.deallocate(block, kBytes);
  for (int i = 0; i < kBlocks; ++i) second.push_back(allocator.allocate(kBytes));
  for (void* block : second) allocator.deallocate(block, kBytes);
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, second);
  // When it does something else for long, the rest goes.
  for (int i = 0; i < 40000; ++i) allocator.deallocate(allocator.allocate(100000), 100000);
  EXPECT_LE(allocator.stats().bytes_cached, static_cast<int64_t>(kLimit + (kLimit >> 3)));
}

TEST(CpuAllocatorTest, ThreadsHandBlocksToEachOther) {
  Allocator& allocator = cpu_allocator();
  const int64_t before = allocator.stats().bytes_in_use;
  constexpr int kBlocks = 20000;
  std::vector<std::atomic<unsigned char*>> slots(64);
  std::thread consumer([&] {
    for (int i = 0; i < kBlocks; ++i) {
      const size_t bytes = 1 + static_cast<size_t>(i % 97) * 300;
      unsigned char* block;
      while ((block = slots[static_cast<size_t>(i) % 64].exchange(nullptr)) == nullptr) {
        std::this_thread::yield();
      }
      ASSERT_EQ(block[bytes - 1], static_cast<unsigned char>(i));
      allocator.deallocate(block, bytes);
    }
  });
  for (int i = 0; i < kBlocks; ++i) {
    const size_t bytes = 1 + static_cast<size_t>(i % 97) * 300;
    auto* const block = static_cast<unsigned char*>(allocator.allocate(bytes));
    std::memset(block, i, bytes);
    std::atomic<unsigned char*>& slot = slots[static_cast<size_t>(i) % 64];
    for (unsigned char* empty = nullptr; !slot.compare_exchange_weak(empty, block);) {
      empty = nullptr;
      std::this_thread::yield();
    }
  }
  consumer.join();
  EXPECT_EQ(allocator.stats().bytes_in_use, before);
}

TEST(CpuAllocatorTest, ManyThreadsWhileOthersReadStats) {
  Allocator& allocator = cpu_allocator();
  const AllocatorStats before = allocator.stats();
  std::atomic<int> running{4};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&running, t] {
      for (int i = 0; i < 3000; ++i) {
        Tensor tensor = Tensor::allocate(DType::kInt32, Shape{1 + i * 13 % 40000}).value();
        tensor.mutable_data<int32_t>()[0] = t;
        const Tensor other = Tensor::scalar<std::string>("thread");
        EXPECT_EQ(tensor.data<int32_t>()[0], t);
      }
      --running;
    });
  }
  while (running > 0) {
    EXPECT_GE(allocator.stats().num_allocations, before.num_allocations);
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(allocator.stats().bytes_in_use, before.bytes_in_use);
  EXPECT_EQ(allocator.stats().num_allocations, before.num_allocations + 4 * 3000 * 2);
}

// Freed when the thread's own cache has gone already.
thread_local Tensor t_late;

TEST(CpuAllocatorTest, TensorsMayOutliveTheThreadsCache) {
  const int64_t before = cpu_allocator().stats().bytes_in_use;
  std::thread([] {
    t_late = Tensor();  // constructed before the cache, so destroyed after it
    t_late = Tensor::scalar(1.0f);
  }).join();
  EXPECT_EQ(cpu_allocator().stats().bytes_in_use, before);
}

TEST(CpuAllocatorDeathTest, LimitOfTheEnvironmentHolds) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        setenv("MILLRACE_CPU_MEMORY_LIMIT", "1000000", 1);
        Allocator& allocator = cpu_allocator();
        const bool refused = allocator.allocate(1000001) == nullptr;
        void* const most = allocator.allocate(900000);
        const bool full = allocator.allocate(200000) == nullptr;
        allocator.deallocate(most, 900000);
        void* const again = allocator.allocate(200000);
        const bool room = again != nullptr;
        allocator.deallocate(again, 200000);
        const bool exact = allocator.stats().bytes_in_use == 0;
        exit(refused && most != nullptr && full && room && exact ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace millrace
