#include <benchmark/benchmark.h>

#include <iterator>
#include <vector>

#include "millrace/base/thread_pool.h"
#include "millrace/ops/nn/conv_gemm.h"
#include "millrace/ops/nn/conv_winograd.h"

// GFLOP/s of convolutions over NHWC images, forward and both backward products: 3x3 over 8 images
// of 56x56x64, layers of AlexNet and GoogleNet, and those with windows of 3x3 of all four networks
// with the plain and the close functions. The definition's operations are counted, whatever is
// done.

namespace millrace {
namespace {

enum Product : int { kForward, kBackwardInput, kBackwardFilter };

struct Layer {
  int64_t batch, size, channels, window, stride, filters;
};

constexpr Layer kLayers[] = {
    {16, 224, 3, 11, 4, 64},   // AlexNet 1
    {16, 27, 64, 5, 1, 192},   // AlexNet 2
    {16, 13, 192, 3, 1, 384},  // AlexNet 3
    {16, 13, 384, 3, 1, 256},  // AlexNet 4
    {8, 224, 3, 7, 2, 64},     // GoogleNet 1
    {8, 56, 64, 1, 1, 64},     // GoogleNet 2
    {8, 56, 64, 3, 1, 192},    // GoogleNet 3
    {8, 28, 192, 1, 1, 96},    // GoogleNet 3a, 1x1
    {8, 28, 96, 3, 1, 128},    // GoogleNet 3a, 3x3
    {8, 28, 16, 5, 1, 32},     // GoogleNet 3a, 5x5
    {8, 14, 512, 1, 1, 160},   // GoogleNet 4b, 1x1
    {8, 14, 112, 3, 1, 224},   // GoogleNet 4b, 3x3
    {8, 7, 832, 1, 1, 384},    // GoogleNet 5b, 1x1
    {8, 7, 192, 3, 1, 384},    // GoogleNet 5b, 3x3
};

// Those with windows of 3x3.
constexpr Layer kSquares[] = {
    {16, 13, 192, 3, 1, 384},   // AlexNet 3
    {16, 13, 384, 3, 1, 256},   // 4
    {16, 13, 256, 3, 1, 256},   // 5
    {8, 12, 256, 3, 1, 512},    // Overfeat 3
    {8, 12, 512, 3, 1, 1024},   // 4
    {8, 12, 1024, 3, 1, 1024},  // 5
    {8, 112, 64, 3, 1, 128},    // OxfordNet 2
    {8, 56, 128, 3, 1, 256},    // 3
    {8, 56, 256, 3, 1, 256},    // 4
    {8, 28, 256, 3, 1, 512},    // 5
    {8, 28, 512, 3, 1, 512},    // 6
    {8, 14, 512, 3, 1, 512},    // 7, 8
    {8, 56, 64, 3, 1, 192},     // GoogleNet 3
    {8, 28, 96, 3, 1, 128},     // 3a
    {8, 28, 128, 3, 1, 192},    // 3b
    {8, 14, 96, 3, 1, 208},     // 4a
    {8, 14, 112, 3, 1, 224},    // 4b
    {8, 14, 144, 3, 1, 288},    // 4d
    {8, 14, 160, 3, 1, 320},    // 4e
    {8, 7, 160, 3, 1, 320},     // 5a
    {8, 7, 192, 3, 1, 384},     // 5b
    {8, 56, 64, 3, 1, 64},     {8, 56, 32, 3, 1, 32},  {8, 112, 16, 3, 1, 32},
    {1, 14, 64, 3, 1, 64},     {1, 7, 512, 3, 1, 512},
};

enum Method : int { kPlain, kClose };

void convolve(benchmark::State& state, const Layer& layer, Product product, bool one_thread,
              Method method = kPlain) {
  const WindowAxis axis{.window = layer.window, .stride = layer.stride};
  const AxisGeometry side = axis_geometry(axis, Padding::kSame, layer.size, "height").value();
  const ConvGeometry g{layer.batch, side, side, layer.channels, layer.filters};
  const auto floats = [](int64_t n) { return std::vector<float>(static_cast<size_t>(n), 0.5f); };
  const int64_t pixels = layer.batch * side.output * side.output;
  const int64_t depth = layer.window * layer.window * layer.channels;
  std::vector<float> image = floats(layer.batch * layer.size * layer.size * layer.channels),
                     filter = floats(depth * layer.filters), out = floats(pixels * layer.filters);
  const auto on_pool = [](int64_t n, double cost, FunctionRef<void(int64_t, int64_t)> body) {
    ThreadPool::global().parallel_for(n, cost, body);
  };
  const auto run = [&](ParallelFor parallel_for) {
    if (method == kClose) {
      switch (product) {
        case kForward:
          return conv_forward_winograd(g, image.data(), filter.data(), out.data(), parallel_for);
        case kBackwardInput:
          return conv_backward_input_winograd(g, filter.data(), out.data(), image.data(),
                                              parallel_for);
        default:
          return conv_backward_filter_winograd(g, image.data(), out.data(), filter.data(),
                                               parallel_for);
      }
    }
    switch (product) {
      case kForward:
        return conv_forward(g, image.data(), filter.data(), out.data(), parallel_for);
      case kBackwardInput:
        return conv_backward_input(g, filter.data(), out.data(), image.data(), parallel_for);
      default:
        return conv_backward_filter(g, image.data(), out.data(), filter.data(), parallel_for);
    }
  };
  for (auto _ : state) {
    if (one_thread) {
      MR_CHECK_OK(run(run_serially));
    } else {
      MR_CHECK_OK(run(on_pool));
    }
    benchmark::ClobberMemory();
  }
  const double flops = 2.0 * static_cast<double>(pixels * layer.filters * depth);
  state.counters["GFLOP/s"] = benchmark::Counter(
      1e-9 * flops * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

void conv3x3(benchmark::State& state) {
  convolve(state, {8, 56, 64, 3, state.range(1), 64}, static_cast<Product>(state.range(0)),
           state.range(2) == 1);
}
BENCHMARK(conv3x3)
    ->ArgNames({"product", "stride", "threads"})
    ->ArgsProduct({{kForward, kBackwardInput, kBackwardFilter}, {1, 2}, {1, 0}})
    ->UseRealTime();

void layer(benchmark::State& state) {
  convolve(state, kLayers[state.range(0)], static_cast<Product>(state.range(1)),
           state.range(2) == 1);
}
BENCHMARK(layer)
    ->ArgNames({"layer", "product", "threads"})
    ->ArgsProduct({benchmark::CreateDenseRange(0, std::size(kLayers) - 1, 1),
                   {kForward, kBackwardInput, kBackwardFilter},
                   {1, 0}})
    ->UseRealTime();

void square(benchmark::State& state) {
  convolve(state, kSquares[state.range(0)], static_cast<Product>(state.range(1)),
           state.range(2) == 1, static_cast<Method>(state.range(3)));
}
BENCHMARK(square)
    ->ArgNames({"layer", "product", "threads", "close"})
    ->ArgsProduct({benchmark::CreateDenseRange(0, std::size(kSquares) - 1, 1),
                   {kForward, kBackwardInput, kBackwardFilter},
                   {1, 0},
                   {kPlain, kClose}})
    ->UseRealTime();

}  // namespace
}  // namespace millrace
