#pragma once

#include <memory>

#include "millrace/base/thread_pool.h"
#include "millrace/kernel/kernel.h"
#include "millrace/kernel/registry.h"

namespace millrace::data {

// A kernel that waits for datasets: it runs on a thread that may block, so that whoever runs the
// step can leave, and the step's cancellation reaches it.
template <KernelFunction kCompute>
class BlockingKernel final : public AsyncKernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode&) {
    return Result<std::unique_ptr<Kernel>>(std::make_unique<BlockingKernel>());
  }

  void compute_async(KernelContext& ctx, Done done) const override {
    ThreadPool::global().schedule_blocking(
        [&ctx, done = std::move(done)]() mutable { done(kCompute(ctx)); });
  }
};

}  // namespace millrace::data
