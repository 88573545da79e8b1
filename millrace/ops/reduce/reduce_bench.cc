#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/base/thread_pool.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/reduce/register.h"

// Reductions through their kernels, next to a memcpy of the bytes they read in the same run:
// "vs_memcpy" is the op's time over the copy's. A copy also writes, so about 0.5 is memory
// bandwidth.

namespace millrace {
namespace {

const bool registered = register_for_tests({register_reduce_ops});

class Runner {
 public:
  Runner(const char* op, Tensor x, std::vector<int32_t> axes) : device_(make_test_device()) {
    const DType dtype = x.dtype();
    values_[0] = Value::of(std::move(x));
    values_[1] = Value::of(Tensor::vector(std::span<const int32_t>(axes)));
    node_.name = op;
    node_.op = OpRegistry::global().find(op);
    node_.attrs = {{"T", dtype}, {"Tidx", DType::kInt32}, {"keep_dims", false}};
    node_.device = device_.get();
    node_.input_types = {dtype, DType::kInt32};
    node_.output_types = {dtype};
    kernel_ = make_kernel(KernelRegistry::global(), node_, DeviceKind::kCpu).value();
    step_.device = device_.get();
    step_.pool = &ThreadPool::global();
  }

  void run() {
    Value output;
    KernelContext context({.node = &node_,
                           .step = &step_,
                           .inputs = inputs_,
                           .outputs = &output,
                           .num_inputs = 2,
                           .num_outputs = 1});
    MR_CHECK_OK(kernel_->compute(context));
    benchmark::DoNotOptimize(output.tensor.raw());
  }

 private:
  Ref<Device> device_;
  KernelNode node_;
  StepContext step_;
  Value values_[2];
  Value* inputs_[2] = {&values_[0], &values_[1]};
  std::unique_ptr<Kernel> kernel_;
};

template <class F>
double nanoseconds(F f) {
  const int64_t begin = monotonic_nanos();
  f();
  return static_cast<double>(monotonic_nanos() - begin);
}

void reduction(benchmark::State& state, const char* op, Shape shape, std::vector<int32_t> axes) {
  Tensor x = Tensor::zeros(DType::kFloat, shape).value();
  const size_t bytes = x.bytes();
  Runner runner(op, std::move(x), std::move(axes));
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
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
  state.counters["vs_memcpy"] = op_ns / copy_ns;
}

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
