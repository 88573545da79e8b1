#include <benchmark/benchmark.h>

#include "millrace/graph/elementwise_tree.h"
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

// x * sigmoid(1.702 * x + b), as one node and op by op: "vs_separate" is the time of the one over
// that of the four.
void fused_gelu(benchmark::State& state) {
  const Tensor x = ones(state.range(0)), b = ones(1), scale = ones(1);
  const ElementwiseTree tree{{{"Mul", DType::kFloat, {0, 2}},
                              {"AddV2", DType::kFloat, {3, 1}},
                              {"Sigmoid", DType::kFloat, {4}},
                              {"Mul", DType::kFloat, {0, 5}}},
                             {3}};
  AttrMap attrs = {{"Tin", std::vector<DType>(3, DType::kFloat)},
                   {"Tout", std::vector<DType>(1, DType::kFloat)}};
  tree.write(attrs);
  KernelRunner fused("_FusedElementwise", {x, b, scale}, attrs);
  const AttrMap type = {{"T", DType::kFloat}};
  KernelRunner mul("Mul", {x, scale}, type), add("AddV2", {x, b}, type),
      sigmoid("Sigmoid", {x}, type), product("Mul", {x, x}, type);
  double fused_ns = 0, separate_ns = 0;
  for (auto _ : state) {
    const int64_t begin = monotonic_nanos();
    fused.run();
    const int64_t middle = monotonic_nanos();
    for (KernelRunner* op : {&mul, &add, &sigmoid, &product}) op->run();
    separate_ns += static_cast<double>(monotonic_nanos() - middle);
    fused_ns += static_cast<double>(middle - begin);
    state.SetIterationTime(static_cast<double>(middle - begin) * 1e-9);
  }
  state.counters["vs_separate"] = fused_ns / separate_ns;
}
BENCHMARK(fused_gelu)->Arg(1)->Arg(1 << 6)->Apply(sizes);

void scalar_add(benchmark::State& state) {
  KernelRunner runner("Add", {Tensor::scalar(1.0F), Tensor::scalar(2.0F)}, {{"T", DType::kFloat}});
  for (auto _ : state) runner.run();
}
BENCHMARK(scalar_add);

}  // namespace
}  // namespace millrace
