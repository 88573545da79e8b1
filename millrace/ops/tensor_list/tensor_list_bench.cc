#include <benchmark/benchmark.h>

#include <vector>

#include "millrace/ops/tensor_list/tensor_list.h"

// n pushes and then n pops of a list, as the forward and backward pass of a loop do: "per_op" is
// the time of one of them.

namespace millrace {
namespace {

enum class Versions { kNone, kOne, kAll };

void push_pop(benchmark::State& state, Versions kept) {
  const Tensor x = Tensor::scalar(1.0F);
  const int64_t n = state.range(0);
  for (auto _ : state) {
    Ref<TensorList> list = make_ref<TensorList>(DType::kFloat, PartialShape::scalar());
    std::vector<Ref<TensorList>> versions;
    const auto next = [&] {
      if (kept == Versions::kNone) return;
      if (kept == Versions::kOne) versions.clear();
      versions.push_back(std::move(list));
      list = versions.back()->share();
    };
    for (int64_t i = 0; i < n; ++i) {
      next();
      (void)list->push(x);
    }
    for (int64_t i = 0; i < n; ++i) {
      next();
      benchmark::DoNotOptimize(list->pop());
    }
  }
  state.counters["per_op"] =
      benchmark::Counter(static_cast<double>(2 * n), benchmark::Counter::kIsIterationInvariantRate |
                                                         benchmark::Counter::kInvert);
}

BENCHMARK_CAPTURE(push_pop, no_other_version, Versions::kNone)->Arg(100)->Arg(10000)->Arg(1000000);
BENCHMARK_CAPTURE(push_pop, last_version_kept, Versions::kOne)->Arg(100)->Arg(10000)->Arg(1000000);
BENCHMARK_CAPTURE(push_pop, all_versions_kept, Versions::kAll)->Arg(100)->Arg(10000);

}  // namespace
}  // namespace millrace
