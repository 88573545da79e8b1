#include <benchmark/benchmark.h>

#include <cstring>

#include "millrace/tensor/tensor.h"

namespace millrace {
namespace {

void allocate_scalar(benchmark::State& state) {
  for (auto _ : state) {
    Result<Tensor> tensor = Tensor::allocate(DType::kFloat, Shape());
    benchmark::DoNotOptimize(tensor->mutable_raw());
  }
}
BENCHMARK(allocate_scalar)->ThreadRange(1, 2);

void copy_tensor_value(benchmark::State& state) {
  const Tensor tensor = Tensor::scalar(1.0f);
  for (auto _ : state) {
    Tensor copy = tensor;
    benchmark::DoNotOptimize(copy.raw());
  }
}
BENCHMARK(copy_tensor_value);

// What an elementwise kernel pays: memory to write once, then given back.
void allocate_and_fill(benchmark::State& state) {
  const int64_t bytes = state.range(0);
  for (auto _ : state) {
    Result<Tensor> tensor = Tensor::allocate(DType::kUInt8, Shape{bytes});
    std::memset(tensor->mutable_raw(), 1, tensor->bytes());
    benchmark::DoNotOptimize(tensor->mutable_raw());
  }
  state.SetBytesProcessed(state.iterations() * bytes);
}
BENCHMARK(allocate_and_fill)->RangeMultiplier(16)->Range(1 << 12, 1 << 28);

}  // namespace
}  // namespace millrace
