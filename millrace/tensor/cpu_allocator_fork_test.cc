#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "millrace/tensor/tensor.h"

namespace millrace {
namespace {

// Without locks taken around the fork, a child now and then inherits one that a thread of its
// parent held, and waits for it for ever.
TEST(CpuAllocatorFork, AChildFreesWhatItInherits) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!stop.load()) {
        Tensor large = Tensor::allocate(DType::kFloat, Shape({1 << 18}), cpu_allocator()).value();
        std::vector<Tensor> small;
        for (int i = 0; i < 200; ++i) {
          small.push_back(Tensor::allocate(DType::kFloat, Shape({64}), cpu_allocator()).value());
        }
      }
    });
  }
  for (int round = 0; round < 200; ++round) {
    std::vector<Tensor> inherited;
    for (int i = 0; i < 300; ++i) {
      inherited.push_back(
          Tensor::allocate(DType::kFloat, Shape({i % 2 == 0 ? 64 : 1 << 16}), cpu_allocator())
              .value());
    }
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);
      inherited.clear();
      _exit(Tensor::allocate(DType::kFloat, Shape({1 << 18}), cpu_allocator()).ok() ? 0 : 1);
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

}  // namespace
}  // namespace millrace
