#include "millrace/device/stream_allocator.h"

#include <gtest/gtest.h>

#include <set>

namespace millrace {
namespace {

// An event that is done when the test says so.
class ManualEvent : public Event {
 public:
  Status wait() override {
    is_done = true;
    ++waits;
    return ok_status();
  }
  bool done() override { return is_done; }
  bool is_done = false;
  int waits = 0;
};

// A stream that notes what it was told to wait for.
class ManualStream : public Stream {
 public:
  Result<Ref<Event>> record() override {
    recorded.push_back(make_ref<ManualEvent>());
    return Ref<Event>(recorded.back());
  }
  Status wait_for(Event& event) override {
    waited_for.push_back(&event);
    return ok_status();
  }
  Status then(UniqueFunction<void(Status)>) override { return unimplemented("not used here"); }
  std::vector<Ref<ManualEvent>> recorded;
  std::vector<Event*> waited_for;
};

// Gives out `blocks` blocks at most at a time.
class RawMemory : public Allocator {
 public:
  explicit RawMemory(int blocks) : left(blocks) {}
  const char* name() const override { return "raw"; }
  MemorySpace space() const override { return MemorySpace::kDevice; }
  void* allocate(size_t bytes) override {
    return left-- > 0 ? cpu_allocator().allocate(bytes) : (++left, nullptr);
  }
  void deallocate(void* data, size_t bytes) override {
    ++left;
    cpu_allocator().deallocate(data, bytes);
  }
  AllocatorStats stats() const override { return {}; }
  void reset_peak() override {}
  int left;
};

struct StreamAllocatorTest : testing::Test {
  RawMemory raw{3};
  ManualStream main;
  StreamAllocator allocator{raw, main};
};

TEST_F(StreamAllocatorTest, FreedMemoryIsGivenOutAgainAtOnce) {
  void* a = allocator.allocate(1000);
  allocator.deallocate(a, 1000);
  void* b = allocator.allocate(1010);
  EXPECT_EQ(a, b);
  EXPECT_TRUE(main.waited_for.empty());
  EXPECT_EQ(allocator.stats().num_allocations, 2);
  EXPECT_EQ(allocator.stats().bytes_cached, 0);
  allocator.deallocate(b, 1010);
  EXPECT_EQ(allocator.stats().bytes_in_use, 0);
  EXPECT_GT(allocator.stats().bytes_cached, 1000);
}

TEST_F(StreamAllocatorTest, MemoryThatAnotherStreamUsesWaitsForItsEvent) {
  void* a = allocator.allocate(1000);
  Ref<ManualEvent> first = make_ref<ManualEvent>(), second = make_ref<ManualEvent>();
  allocator.keep_until(a, first);
  allocator.keep_until(a, second);
  allocator.deallocate(a, 1000);
  void* b = allocator.allocate(1000);
  EXPECT_NE(a, b);
  first->is_done = true;
  void* c = allocator.allocate(1000);
  EXPECT_NE(a, c);
  allocator.deallocate(c, 1000);
  second->is_done = true;
  // The event was for the use before: the next one is free of it.
  std::set<void*> again = {allocator.allocate(1000), allocator.allocate(1000)};
  EXPECT_EQ(again, (std::set<void*>{a, c}));
  EXPECT_TRUE(main.waited_for.empty());
  for (void* data : {a, b, c}) allocator.deallocate(data, 1000);
}

TEST_F(StreamAllocatorTest, WhenMemoryIsShortTheStreamWaitsAndTheHostGoesOn) {
  std::vector<void*> all;
  for (int i = 0; i < 3; ++i) all.push_back(allocator.allocate(1000));
  EXPECT_EQ(allocator.allocate(1000), nullptr);
  Ref<ManualEvent> copied = make_ref<ManualEvent>();
  allocator.keep_until(all[1], copied);
  allocator.deallocate(all[1], 1000);
  EXPECT_EQ(allocator.allocate(1000), all[1]);
  EXPECT_EQ(main.waited_for, std::vector<Event*>{copied.get()});
  EXPECT_EQ(copied->waits, 0);
  for (void* data : all) allocator.deallocate(data, 1000);
}

TEST_F(StreamAllocatorTest, BlocksOfOtherSizesAreGivenBackWhenMemoryIsShort) {
  std::vector<void*> small;
  for (int i = 0; i < 3; ++i) small.push_back(allocator.allocate(1000));
  Ref<ManualEvent> copied = make_ref<ManualEvent>();
  allocator.keep_until(small[0], copied);
  for (void* data : small) allocator.deallocate(data, 1000);
  void* large = allocator.allocate(100'000);
  EXPECT_NE(large, nullptr);
  // Not before both streams were done with them.
  ASSERT_FALSE(main.recorded.empty());
  EXPECT_EQ(main.recorded.back()->waits, 1);
  EXPECT_EQ(copied->waits, 1);
  EXPECT_EQ(allocator.stats().bytes_cached, 0);
  allocator.deallocate(large, 100'000);
  EXPECT_EQ(allocator.allocate(size_t{1} << 63), nullptr);
}

}  // namespace
}  // namespace millrace
