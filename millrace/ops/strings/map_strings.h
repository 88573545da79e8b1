#pragma once

#include <string>

#include "millrace/kernel/kernel.h"

namespace millrace {

// Nanoseconds to make one short string, for parallel_for.
inline constexpr double kStringCost = 60;

// Sets output 0, of the shape of input 0, to f(string) of each string; f returns a Result, and the
// first error is the kernel's.
template <class T, class F>
Status map_strings(KernelContext& ctx, F f) {
  const std::span<const std::string> from = ctx.input(0).data<std::string>();
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, ctx.input(0).shape()));
  const std::span<T> to = out->mutable_data<T>();
  for (size_t i = 0; i < from.size(); ++i) {
    MR_TRY_ASSIGN(to[i], f(from[i]));
  }
  return ok_status();
}

}  // namespace millrace
