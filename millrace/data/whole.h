#pragma once

#include <memory>

#include "millrace/data/dataset.h"
#include "millrace/kernel/kernel.h"

namespace millrace::data {

// A dataset that an op iterates over here and now, on a thread that may block. Ends with the step.
struct Whole {
  Ref<Environment> environment;
  std::unique_ptr<Iterator> iterator;

  static Result<Whole> make(const KernelContext& ctx, const Dataset& dataset) {
    Whole whole;
    whole.environment =
        make_ref<Environment>(ctx.step().functions, Ref<Device>(&ctx.device()), ctx.step().cancel);
    MR_TRY_ASSIGN(whole.iterator, dataset.iterate(Iteration::of(dataset, whole.environment)));
    return whole;
  }
};

}  // namespace millrace::data
