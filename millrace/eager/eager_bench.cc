// What the call of an op costs besides its kernel, and what a tape adds. Counts of time are per op.

#include <benchmark/benchmark.h>

#include "millrace/device/cpu/cpu_device.h"
#include "millrace/eager/eager_context.h"
#include "millrace/eager/tape.h"
#include "millrace/ops/register_ops.h"

namespace millrace::eager {
namespace {

Ref<EagerContext> make_context() {
  MR_CHECK_OK(register_ops());
  ContextOptions options;
  options.devices =
      make_cpu_devices(DeviceName::parse("/job:localhost/replica:0/task:0").value(), 1).value();
  return EagerContext::create(std::move(options)).value();
}

void scalar_add(benchmark::State& state) {
  const Ref<EagerContext> context = make_context();
  const Op add = context->op("AddV2").value();
  const TensorRef a = context->tensor(Tensor::scalar(1.0f)),
                  b = context->tensor(Tensor::scalar(2.0f));
  EagerTensor* const inputs[] = {a.get(), b.get()};
  TensorRef sum;
  for (auto _ : state) {
    MR_CHECK_OK(context->run_one(add, inputs, sum));
    benchmark::DoNotOptimize(sum);
  }
}
BENCHMARK(scalar_add);

void scalar_add_by_name(benchmark::State& state) {
  const Ref<EagerContext> context = make_context();
  const TensorRef a = context->tensor(Tensor::scalar(1.0f)),
                  b = context->tensor(Tensor::scalar(2.0f));
  for (auto _ : state) {
    benchmark::DoNotOptimize(context->execute_one("AddV2", {a, b}).value());
  }
}
BENCHMARK(scalar_add_by_name);

// Ops with attributes: a key of more than the op and its types.
void small_matmul(benchmark::State& state) {
  const Ref<EagerContext> context = make_context();
  const Op matmul = context->op("MatMul", {{"transpose_b", true}}).value();
  const TensorRef a = context->tensor(Tensor::of<float>({1, 2}, {1, 2}));
  EagerTensor* const inputs[] = {a.get(), a.get()};
  TensorRef product;
  for (auto _ : state) {
    MR_CHECK_OK(context->run_one(matmul, inputs, product));
    benchmark::DoNotOptimize(product);
  }
}
BENCHMARK(small_matmul);

void scalar_add_on_tape(benchmark::State& state) {
  const Ref<EagerContext> context = make_context();
  const Op add = context->op("AddV2").value();
  const TensorRef a = context->tensor(Tensor::scalar(1.0f)),
                  b = context->tensor(Tensor::scalar(2.0f));
  EagerTensor* const inputs[] = {a.get(), b.get()};
  Tape tape;
  tape.start();
  tape.watch(*a);
  TensorRef sum;
  for (auto _ : state) {
    MR_CHECK_OK(context->run_one(add, inputs, sum));
    benchmark::DoNotOptimize(sum);
  }
}
BENCHMARK(scalar_add_on_tape);

// A chain of a hundred additions, and its gradient.
void gradient_of_chain(benchmark::State& state) {
  constexpr int kOps = 100;
  const Ref<EagerContext> context = make_context();
  const Op add = context->op("AddV2").value();
  const TensorRef x = context->tensor(Tensor::scalar(1.0f));
  for (auto _ : state) {
    Tape tape;
    tape.start();
    tape.watch(*x);
    TensorRef y = x;
    for (int i = 0; i < kOps; ++i) {
      EagerTensor* const inputs[] = {y.get(), x.get()};
      TensorRef sum;
      MR_CHECK_OK(context->run_one(add, inputs, sum));
      y = std::move(sum);
    }
    benchmark::DoNotOptimize(tape.gradient(*context, {y}, {x}).value());
  }
  state.counters["per_op"] = benchmark::Counter(
      kOps, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(gradient_of_chain);

}  // namespace
}  // namespace millrace::eager
