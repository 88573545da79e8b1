// test-labels: threads

#include <thread>

#include "millrace/eager/context_testing.h"
#include "millrace/eager/tape.h"
#include "millrace/eager/variable.h"

namespace millrace::eager {
namespace {

class EagerThreads : public EagerTest {};

// Each thread has its own tapes; kernels, variables and what is watched are shared.
TEST_F(EagerThreads, RunAndRecordSideBySide) {
  const Variable v = Variable::create(context_, Tensor::scalar(3.0f)).value();
  const TensorRef shared = scalar(2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        Tape tape;
        tape.start();
        tape.watch(*shared);
        TensorRef y = run("Mul", {v.read().value(), shared});
        for (int k = 0; k < t; ++k) y = run("Mul", {y, shared});
        auto found = tape.gradient(*context_, {y}, {v.handle(), shared});
        ASSERT_TRUE(found.ok()) << found.status().to_string();
        EXPECT_EQ(values((*found)[0].values)[0], static_cast<float>(2 << t));
        EXPECT_EQ(values((*found)[1].values)[0], static_cast<float>(3 * (t + 1) * (1 << t)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Traces begin and end while other threads run.
TEST_F(EagerThreads, AreTracedTogether) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!stop.load()) run("Add", {scalar(1), scalar(2)});
    });
  }
  size_t seen = 0;
  while (seen < 100) {
    context_->start_trace();
    run("Mul", {scalar(1), scalar(2)});
    const auto events = context_->stop_trace();
    ASSERT_TRUE(events.ok()) << events.status().to_string();
    seen += events->size();
  }
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace millrace::eager
