#include <benchmark/benchmark.h>

#include <vector>

#include "millrace/ops/kernel_runner_testing.h"
#include "millrace/ops/register_ops.h"

// Reductions through their kernels, next to a memcpy of the bytes they read in the same run:
// "vs_memcpy" is the op's time over the copy's. A copy also writes, so about 0.5 is memory
// bandwidth.

namespace millrace {
namespace {

const bool registered = register_for_tests({register_reduce_ops});

void reduction(benchmark::State& state, const char* op, const Shape& shape,
               const std::vector<int32_t>& axes) {
  Tensor x = Tensor::zeros(DType::kFloat, shape).value();
  const size_t bytes = x.bytes();
  KernelRunner runner(op, {std::move(x), Tensor::vector(std::span<const int32_t>(axes))},
                      {{"T", DType::kFloat}, {"Tidx", DType::kInt32}, {"keep_dims", false}});
  run_beside_memcpy(state, runner, bytes);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
}

// 2^22 floats in rows of state.range(0), added up in a quarter as many rows in a mixed order.
void segment_sum(benchmark::State& state) {
  const int64_t cols = state.range(0), rows = (int64_t{1} << 22) / cols, segments = rows / 4;
  Tensor x = Tensor::zeros(DType::kFloat, {rows, cols}).value();
  Tensor ids = Tensor::allocate(DType::kInt64, {rows}).value();
  int64_t next = 0;
  for (int64_t& id : ids.mutable_data<int64_t>()) id = next = (next * 5 + 12345) % segments;
  const size_t bytes = x.bytes();
  KernelRunner runner(
      "UnsortedSegmentSum", {std::move(x), std::move(ids), Tensor::scalar(segments)},
      {{"T", DType::kFloat}, {"Tindices", DType::kInt64}, {"Tnumsegments", DType::kInt64}});
  run_beside_memcpy(state, runner, bytes);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
}
BENCHMARK(segment_sum)->Arg(1)->Arg(16)->Arg(64)->Arg(512)->UseManualTime();

using Axes = std::vector<int32_t>;
BENCHMARK_CAPTURE(reduction, SumAll16M, "Sum", Shape{1 << 24}, Axes{0})->UseManualTime();
BENCHMARK_CAPTURE(reduction, SumRows, "Sum", Shape{4096, 4096}, Axes{1})->UseManualTime();
BENCHMARK_CAPTURE(reduction, SumColumns, "Sum", Shape{4096, 4096}, Axes{0})->UseManualTime();
BENCHMARK_CAPTURE(reduction, SumShortRows, "Sum", Shape{1 << 20, 10}, Axes{1})->UseManualTime();
BENCHMARK_CAPTURE(reduction, SumFewColumns, "Sum", Shape{1 << 20, 10}, Axes{0})->UseManualTime();
BENCHMARK_CAPTURE(reduction, MaxAll16M, "Max", Shape{1 << 24}, Axes{0})->UseManualTime();
BENCHMARK_CAPTURE(reduction, SumImages, "Sum", Shape{64, 56, 56, 64}, Axes{0, 1, 2})
    ->UseManualTime();
BENCHMARK_CAPTURE(reduction, MeanSmall, "Mean", Shape{128}, Axes{0})->UseManualTime();

}  // namespace
}  // namespace millrace
