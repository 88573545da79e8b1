#pragma once

#include "millrace/kernel/kernel.h"

namespace millrace {

// A kernel's parallel_for as the ParallelFor that gemm() takes.
struct ContextParallel {
  const KernelContext& ctx;
  void operator()(int64_t n, double cost_ns_per_unit,
                  FunctionRef<void(int64_t, int64_t)> body) const {
    ctx.parallel_for(n, cost_ns_per_unit, body);
  }
};

}  // namespace millrace
