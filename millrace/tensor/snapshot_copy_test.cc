// test-labels: threads

#include "millrace/tensor/snapshot_copy.h"

#include <gtest/gtest.h>

#include <thread>

namespace millrace {
namespace {

// Gives memory when it is told to.
class SlowAllocator final : public Allocator {
 public:
  const char* name() const override { return "slow"; }
  MemorySpace space() const override { return MemorySpace::kHost; }
  void* allocate(size_t bytes) override {
    asked = true;
    asked.notify_all();
    open.wait(false);
    return cpu_allocator().allocate(bytes);
  }
  void deallocate(void* data, size_t bytes) override { cpu_allocator().deallocate(data, bytes); }
  AllocatorStats stats() const override { return {}; }
  void reset_peak() override {}

  std::atomic<bool> asked{false}, open{false};
};

TEST(SnapshotCopy, SavesGiveWay) {
  SnapshotCopy::give_way();  // nobody copies
  SlowAllocator slow;
  const Tensor tensor = Tensor::vector<float>({1, 2, 3});
  std::thread step([&] {
    const Result<Tensor> copy = SnapshotCopy::make(tensor, slow);
    ASSERT_TRUE(copy.ok());
    EXPECT_EQ(copy->data<float>()[2], 3);
    EXPECT_NE(copy->raw(), tensor.raw());
  });
  slow.asked.wait(false);
  std::atomic<bool> began{false};
  std::thread save([&] {
    began = true;
    began.notify_all();
    SnapshotCopy::give_way();
    EXPECT_TRUE(slow.open);
  });
  began.wait(false);
  std::this_thread::yield();  // so that a save that does not wait is seen
  slow.open = true;
  slow.open.notify_all();
  step.join();
  save.join();
}

}  // namespace
}  // namespace millrace
