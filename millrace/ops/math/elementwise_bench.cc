#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>

#include "millrace/base/clock.h"
#include "millrace/base/thread_pool.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/math/register.h"

// Elementwise ops through their kernels, next to a memcpy of as many bytes as they read and write
// in the same run: "vs_memcpy" is the op's time over the copy's, so 1 is memory bandwidth.

namespace millrace {
namespace {

const bool registered = register_for_tests({register_math_ops});

// A node and its kernel, run again and again over the same inputs.
class Runner {
 public:
  Runner(const char* op, std::vector<Tensor> inputs) : device_(make_test_device()) {
    node_.name = op;
    node_.op = OpRegistry::global().find(op);
    node_.attrs = {{"T", inputs[0].dtype()}};
    node_.device = device_.get();
    for (Tensor& t : inputs) {
      node_.input_types.push_back(t.dtype());
      values_.push_back(Value::of(std::move(t)));
    }
    node_.output_types = {node_.input_types[0]};
    kernel_ = make_kernel(KernelRegistry::global(), node_, DeviceKind::kCpu).value();
    step_.device = device_.get();
    step_.pool = &ThreadPool::global();
    for (Value& v : values_) inputs_.push_back(&v);
  }

  void run() {
    Value output;
    KernelContext context({.node = &node_,
                           .step = &step_,
                           .inputs = inputs_.data(),
                           .outputs = &output,
                           .num_inputs = static_cast<int>(inputs_.size()),
                           .num_outputs = 1});
    MR_CHECK_OK(kernel_->compute(context));
    benchmark::DoNotOptimize(output.tensor.raw());
  }

 private:
  Ref<Device> device_;
  KernelNode node_;
  StepContext step_;
  std::vector<Value> values_;
  std::vector<Value*> inputs_;
  std::unique_ptr<Kernel> kernel_;
};

Tensor ones(int64_t n) {
  Tensor t = Tensor::allocate(DType::kFloat, Shape{n}).value();
  for (float& v : t.mutable_data<float>()) v = 1;
  return t;
}

template <class F>
double nanoseconds(F f) {
  const int64_t begin = monotonic_nanos();
  f();
  return static_cast<double>(monotonic_nanos() - begin);
}

void elementwise(benchmark::State& state, const char* op, int inputs) {
  const int64_t n = state.range(0);
  Runner runner(op, std::vector<Tensor>(static_cast<size_t>(inputs), ones(n)));
  // A copy reads and writes; an op with two inputs moves half as much again.
  const size_t bytes = static_cast<size_t>(n) * sizeof(float) * static_cast<size_t>(inputs + 1) / 2;
  std::vector<char> from(bytes, 1), to(bytes, 1);
  double op_ns = 0, copy_ns = 0;
  for (auto _ : state) {
    const double op_time = nanoseconds([&] { runner.run(); });
    copy_ns += nanoseconds([&] {
      std::memcpy(to.data(), from.data(), bytes);
      benchmark::DoNotOptimize(to.data());
      benchmark::ClobberMemory();
    });
    op_ns += op_time;
    state.SetIterationTime(op_time * 1e-9);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes) * 2);
  state.counters["vs_memcpy"] = op_ns / copy_ns;
}

void sizes(benchmark::internal::Benchmark* b) {
  b->Arg(1 << 10)->Arg(1 << 20)->Arg(1 << 24)->UseManualTime();
}

BENCHMARK_CAPTURE(elementwise, Add, "Add", 2)->Apply(sizes);
BENCHMARK_CAPTURE(elementwise, Mul, "Mul", 2)->Apply(sizes);
BENCHMARK_CAPTURE(elementwise, Exp, "Exp", 1)->Apply(sizes);
BENCHMARK_CAPTURE(elementwise, Tanh, "Tanh", 1)->Apply(sizes);

void scalar_add(benchmark::State& state) {
  Runner runner("Add", {Tensor::scalar(1.0F), Tensor::scalar(2.0F)});
  for (auto _ : state) runner.run();
}
BENCHMARK(scalar_add);

}  // namespace
}  // namespace millrace
