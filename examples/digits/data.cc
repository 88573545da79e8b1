#include "data.h"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <sstream>

using namespace millrace;

namespace {

constexpr int64_t kSide = 8, kPixels = kSide * kSide;

}  // namespace

Result<Digits> Digits::read(const std::string& path, uint32_t seed) {
  std::ifstream file(path);
  if (!file) return not_found("cannot open ", path);
  Digits out;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::vector<int> values;
    for (std::string field; std::getline(fields, field, ',');) {
      values.push_back(std::atoi(field.c_str()));
    }
    if (values.size() != kPixels + 1) {
      return data_loss(path, ":", out.size() + 1, ": expected 65 numbers, got ", values.size());
    }
    for (size_t i = 0; i < kPixels; ++i) {
      out.pixels_.push_back(static_cast<float>(values[i]) / 16.0F);
    }
    out.labels_.push_back(values[kPixels]);
  }
  if (out.size() < 2) return data_loss(path, ": expected images, got ", out.size());
  out.random_.seed(seed);
  out.order_.resize(out.labels_.size());
  std::iota(out.order_.begin(), out.order_.end(), int64_t{0});
  std::shuffle(out.order_.begin(), out.order_.end(), out.random_);
  return out;
}

void Digits::shuffle() { std::shuffle(order_.begin(), order_.begin() + num_train(), random_); }

Batch Digits::batch(int begin, int end) const {
  std::vector<float> pixels;
  std::vector<int32_t> labels;
  for (int i = begin; i < end; ++i) {
    const int64_t image = order_[static_cast<size_t>(i)];
    auto first = pixels_.begin() + image * kPixels;
    pixels.insert(pixels.end(), first, first + kPixels);
    labels.push_back(labels_[static_cast<size_t>(image)]);
  }
  return {Tensor::vector<float>(pixels).reshaped(Shape{end - begin, kSide, kSide, 1}).value(),
          Tensor::vector<int32_t>(labels)};
}
