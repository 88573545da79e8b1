#include <benchmark/benchmark.h>

#include "millrace/ops/kernel_runner_testing.h"
#include "millrace/ops/register_ops.h"

// Elementwise ops through their kernels, next to a memcpy of as many bytes as they read and write
// in the same run: "vs_memcpy" is the op's time over the copy's, so 1 is memory bandwidth.

namespace millrace {
namespace {

const bool registered = register_for_tests({register_math_ops});

Tensor ones(int64_t n) {
  Tensor t = Tensor::allocate(DType::kFloat, Shape{n}).value();
  for (float& v : t.mutable_data<float>()) v = 1;
  return t;
}

void elementwise(benchmark::State& state, const char* op, int inputs) {
  const int64_t n = state.range(0);
  KernelRunner runner(op, std::vector<Tensor>(static_cast<size_t>(inputs), ones(n)),
                      {{"T", DType::kFloat}});
  // A copy reads and writes; an op with two inputs moves half as much again.
  const size_t bytes = static_cast<size_t>(n) * sizeof(float) * static_cast<size_t>(inputs + 1) / 2;
  run_beside_memcpy(state, runner, bytes);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes) * 2);
}

void sizes(benchmark::internal::Benchmark* b) {
  b->Arg(1 << 10)->Arg(1 << 20)->Arg(1 << 24)->UseManualTime();
}

BENCHMARK_CAPTURE(elementwise, Add, "Add", 2)->Apply(sizes);
BENCHMARK_CAPTURE(elementwise, Mul, "Mul", 2)->Apply(sizes);
BENCHMARK_CAPTURE(elementwise, Exp, "Exp", 1)->Apply(sizes);
BENCHMARK_CAPTURE(elementwise, Tanh, "Tanh", 1)->Apply(sizes);

void scalar_add(benchmark::State& state) {
  KernelRunner runner("Add", {Tensor::scalar(1.0F), Tensor::scalar(2.0F)}, {{"T", DType::kFloat}});
  for (auto _ : state) runner.run();
}
BENCHMARK(scalar_add);

}  // namespace
}  // namespace millrace
