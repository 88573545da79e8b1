#pragma once

#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/kernel/kernel_testing.h"

// For benchmarks of single ops.

namespace millrace {

// A node and its kernel, run again and again over the same inputs. Its one output has the type of
// the first input.
class KernelRunner {
 public:
  KernelRunner(const char* op, std::vector<Tensor> inputs, AttrMap attrs)
      : device_(make_test_device()) {
    node_.name = op;
    node_.op = OpRegistry::global().find(op);
    node_.attrs = std::move(attrs);
    node_.device = device_.get();
    for (Tensor& t : inputs) {
      node_.input_types.push_back(t.dtype());
      values_.push_back(Value::of(std::move(t)));
    }
    node_.output_types = {node_.input_types[0]};
    kernel_ = make_kernel(KernelRegistry::global(), node_, DeviceKind::kCpu).value();
    for (Value& v : values_) inputs_.push_back(&v);
  }

  void run() {
    Value output;
    KernelContext context({.node = &node_,
                           .step = step_.get(),
                           .device = device_.get(),
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
  Ref<Step> step_ = make_ref<Step>();
  std::vector<Value> values_;
  std::vector<Value*> inputs_;
  std::unique_ptr<Kernel> kernel_;
};

// Runs the op and a memcpy of `bytes` in turns: "vs_memcpy" is the op's time over the copy's. The
// benchmark must use manual time, which is the op's alone.
inline void run_beside_memcpy(benchmark::State& state, KernelRunner& runner, size_t bytes) {
  const auto nanoseconds = [](auto f) {
    const int64_t begin = monotonic_nanos();
    f();
    return static_cast<double>(monotonic_nanos() - begin);
  };
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
  state.counters["vs_memcpy"] = op_ns / copy_ns;
}

}  // namespace millrace
