#include <benchmark/benchmark.h>

#include "millrace/ops/kernel_runner_testing.h"
#include "millrace/ops/register_ops.h"

// Pools, BiasAdd, softmax and LRN, most over 8 NHWC images of 56x56x64, through their kernels, next
// to a memcpy of their input: "vs_memcpy" is the op's time over the copy's.

namespace millrace {
namespace {

const bool registered = register_for_tests({register_nn_ops});

Tensor numbers(const Shape& shape) {
  Tensor t = Tensor::allocate(DType::kFloat, shape).value();
  float next = 0;
  for (float& v : t.mutable_data<float>()) v = next = next < 100 ? next + 0.7F : -100;
  return t;
}
Tensor images() { return numbers({8, 56, 56, 64}); }

AttrMap pool_attrs(std::vector<int64_t> window, std::vector<int64_t> strides) {
  return {{"T", DType::kFloat},
          {"ksize", std::move(window)},
          {"strides", std::move(strides)},
          {"padding", "SAME"}};
}

void run(benchmark::State& state, const char* op, std::vector<Tensor> inputs, AttrMap attrs) {
  const size_t bytes = inputs[0].bytes();
  KernelRunner runner(op, std::move(inputs), std::move(attrs));
  run_beside_memcpy(state, runner, bytes);
}

void pool(benchmark::State& state, const char* op) {
  AttrMap attrs = pool_attrs({1, 3, 3, 1}, {1, 2, 2, 1});
  attrs.set("data_format", "NHWC");
  run(state, op, {images()}, std::move(attrs));
}
BENCHMARK_CAPTURE(pool, MaxPool, "MaxPool")->UseManualTime();
BENCHMARK_CAPTURE(pool, AvgPool, "AvgPool")->UseManualTime();

void max_pool_grad(benchmark::State& state) {
  AttrMap attrs = pool_attrs({1, 3, 3, 1}, {1, 2, 2, 1});
  attrs.set("data_format", "NHWC");
  run(state, "MaxPoolGrad", {images(), numbers({8, 28, 28, 64}), numbers({8, 28, 28, 64})},
      std::move(attrs));
}
BENCHMARK(max_pool_grad)->UseManualTime();

void pool_volumes(benchmark::State& state, const char* op) {
  AttrMap attrs = pool_attrs({1, 2, 2, 2, 1}, {1, 2, 2, 2, 1});
  attrs.set("data_format", "NDHWC");
  run(state, op, {numbers({1, 8, 56, 56, 64})}, std::move(attrs));
}
BENCHMARK_CAPTURE(pool_volumes, MaxPool3D, "MaxPool3D")->UseManualTime();
BENCHMARK_CAPTURE(pool_volumes, AvgPool3D, "AvgPool3D")->UseManualTime();

void bias_add(benchmark::State& state, const Shape& shape, const char* format) {
  const int64_t channels = shape[std::string_view(format) == "NCHW" ? 1 : shape.rank() - 1];
  run(state, "BiasAdd", {numbers(shape), numbers({channels})},
      {{"T", DType::kFloat}, {"data_format", format}});
}
BENCHMARK_CAPTURE(bias_add, NHWC, Shape{8, 56, 56, 64}, "NHWC")->UseManualTime();
BENCHMARK_CAPTURE(bias_add, NCHW, Shape{8, 64, 56, 56}, "NCHW")->UseManualTime();
BENCHMARK_CAPTURE(bias_add, few_channels, Shape{8, 224, 224, 3}, "NHWC")->UseManualTime();
BENCHMARK_CAPTURE(bias_add, small, Shape{8, 256}, "NHWC")->UseManualTime();

void bias_add_grad(benchmark::State& state, const Shape& shape, const char* format) {
  run(state, "BiasAddGrad", {numbers(shape)}, {{"T", DType::kFloat}, {"data_format", format}});
}
BENCHMARK_CAPTURE(bias_add_grad, NHWC, Shape{8, 56, 56, 64}, "NHWC")->UseManualTime();
BENCHMARK_CAPTURE(bias_add_grad, NCHW, Shape{8, 64, 56, 56}, "NCHW")->UseManualTime();
BENCHMARK_CAPTURE(bias_add_grad, small, Shape{8, 256}, "NHWC")->UseManualTime();

void softmax(benchmark::State& state, const char* op) {
  run(state, op, {numbers({(1 << 18) / state.range(0), state.range(0)})}, {{"T", DType::kFloat}});
}
BENCHMARK_CAPTURE(softmax, Softmax, "Softmax")->Arg(10)->Arg(128)->Arg(1024)->UseManualTime();
BENCHMARK_CAPTURE(softmax, LogSoftmax, "LogSoftmax")->Arg(1024)->UseManualTime();

void lrn(benchmark::State& state) {
  run(state, "LRN", {images()},
      {{"T", DType::kFloat},
       {"depth_radius", 2},
       {"bias", 1.0F},
       {"alpha", 1.0F},
       {"beta", 0.75F}});
}
BENCHMARK(lrn)->UseManualTime();

}  // namespace
}  // namespace millrace
