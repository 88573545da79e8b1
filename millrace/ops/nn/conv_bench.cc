#include <benchmark/benchmark.h>

#include <vector>

#include "millrace/base/thread_pool.h"
#include "millrace/ops/nn/conv_gemm.h"

// GFLOP/s of 3x3 convolutions over 8 NHWC images of 56x56x64: forward and both backward products.

namespace millrace {
namespace {

enum Product : int { kForward, kBackwardInput, kBackwardFilter };

void conv3x3(benchmark::State& state) {
  const int64_t stride = state.range(1), channels = 64;
  const WindowAxis axis{.window = 3, .stride = stride};
  const AxisGeometry side = axis_geometry(axis, Padding::kSame, 56, "height").value();
  const ConvGeometry g{8, side, side, channels, channels};
  const auto floats = [](int64_t n) { return std::vector<float>(static_cast<size_t>(n), 0.5f); };
  std::vector<float> image = floats(8 * 56 * 56 * channels),
                     filter = floats(9 * channels * channels);
  std::vector<float> out = floats(8 * side.output * side.output * channels);
  const auto on_pool = [](int64_t n, double cost, FunctionRef<void(int64_t, int64_t)> body) {
    ThreadPool::global().parallel_for(n, cost, body);
  };
  const auto run = [&](ParallelFor parallel_for) {
    switch (state.range(0)) {
      case kForward:
        return conv_forward(g, image.data(), filter.data(), out.data(), parallel_for);
      case kBackwardInput:
        return conv_backward_input(g, filter.data(), out.data(), image.data(), parallel_for);
      default:
        return conv_backward_filter(g, image.data(), out.data(), filter.data(), parallel_for);
    }
  };
  for (auto _ : state) {
    if (state.range(2) == 1) {
      MR_CHECK_OK(run(run_serially));
    } else {
      MR_CHECK_OK(run(on_pool));
    }
    benchmark::ClobberMemory();
  }
  const double flops = 2.0 * 8 * static_cast<double>(side.output * side.output) * 9 * 64 * 64;
  state.counters["GFLOP/s"] = benchmark::Counter(
      1e-9 * flops * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

BENCHMARK(conv3x3)
    ->ArgNames({"product", "stride", "threads"})
    ->ArgsProduct({{kForward, kBackwardInput, kBackwardFilter}, {1, 2}, {1, 0}})
    ->UseRealTime();

}  // namespace
}  // namespace millrace
