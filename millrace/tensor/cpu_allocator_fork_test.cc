#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "millrace/tensor/tensor.h"

namespace millrace {
namespace {

// Under a sanitizer memory comes from its allocator, which is not made for forks.
#if !defined(MILLRACE_ADDRESS_SANITIZER) && !defined(MILLRACE_THREAD_SANITIZER)

// Without locks taken around the fork, a child now and then inherits one that a thread of its
// parent held, and waits for it for ever.
TEST(CpuAllocatorFork, AChildFreesWhatItInherits) {
  // Larger than what threads keep for themselves, so every one of them takes the shared lock.
  const auto shared_block = [] {
    return Tensor::allocate(DType::kFloat, Shape({1 << 14}), cpu_allocator()).value();
  };
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) shared_block();
    });
  }
  for (int round = 0; round < 100; ++round) {
    Tensor inherited = shared_block();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);
      inherited = Tensor();
      _exit(shared_block().valid() ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status))
        << "round " << round << ": the child was ended by signal " << WTERMSIG(status);
    ASSERT_EQ(WEXITSTATUS(status), 0);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

#endif

}  // namespace
}  // namespace millrace
