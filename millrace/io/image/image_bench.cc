#include <benchmark/benchmark.h>

#include <cmath>

#include "millrace/io/image/jpeg.h"
#include "millrace/io/image/png.h"

namespace millrace {
namespace {

// As large as photographs in training sets are, with waves and some noise.
Tensor photograph() {
  constexpr int64_t kHeight = 375, kWidth = 500;
  Tensor image = Tensor::zeros(DType::kUInt8, Shape{kHeight, kWidth, 3}).value();
  uint8_t* to = image.mutable_data<uint8_t>().data();
  uint32_t noise = 1;
  for (int64_t i = 0; i < kHeight * kWidth * 3; ++i) {
    const double x = static_cast<double>(i / 3 % kWidth), y = static_cast<double>(i / 3 / kWidth);
    noise = noise * 1664525 + 1013904223;
    to[i] =
        static_cast<uint8_t>(128 + 50 * std::sin(x / 9) + 50 * std::cos(y / 13) + (noise >> 28));
  }
  return image;
}

void decode(benchmark::State& state, JpegDecodeOptions options) {
  const std::string bytes = encode_jpeg(photograph(), {}).value();
  for (auto _ : state) benchmark::DoNotOptimize(decode_jpeg(bytes, options).value());
  state.SetItemsProcessed(state.iterations());
}

void bm_decode_jpeg(benchmark::State& state) { decode(state, {}); }
BENCHMARK(bm_decode_jpeg);

void bm_crop_jpeg(benchmark::State& state) {
  JpegDecodeOptions options;
  options.crop = true;
  options.crop_y = 75;
  options.crop_x = 138;
  options.crop_height = options.crop_width = 224;
  decode(state, options);
}
BENCHMARK(bm_crop_jpeg);

void bm_decode_png(benchmark::State& state) {
  const std::string bytes = encode_png(photograph()).value();
  for (auto _ : state) benchmark::DoNotOptimize(decode_png(bytes, 0, DType::kUInt8).value());
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(bm_decode_png);

}  // namespace
}  // namespace millrace
