#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/tensor/tensor.h"

// What fuzzers draw from their input: sizes, numbers and tensors, those at the
// edges most often.

namespace millrace {

// Choices that follow from bytes. When these run out every choice is the first one, so a shorter
// input is a simpler one.
class Choices {
 public:
  explicit Choices(std::string_view bytes) : bytes_(bytes) {}
  // Endless ones, from a seed.
  explicit Choices(uint64_t seed) : seed_(seed | 1) {}

  uint8_t byte() {
    if (seed_ != 0) {
      seed_ = seed_ * 6364136223846793005 + 1442695040888963407;
      return static_cast<uint8_t>(seed_ >> 56);
    }
    if (bytes_.empty()) return 0;
    uint8_t first = static_cast<uint8_t>(bytes_[0]);
    bytes_.remove_prefix(1);
    return first;
  }
  // Below n, which is not 0.
  size_t below(size_t n) {
    size_t wide = byte();
    if (n > 256) wide = wide << 8 | byte();
    return wide % n;
  }
  bool one_in(size_t n) { return below(n) == n - 1; }
  template <class T>
  T of(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }
  template <class T>
  const T& of(const std::vector<T>& values) {
    return values[below(values.size())];
  }

  int64_t integer() {
    constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
    constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
    return of<int64_t>({1,
                        0,
                        -1,
                        2,
                        3,
                        4,
                        5,
                        7,
                        -2,
                        -3,
                        8,
                        16,
                        100,
                        255,
                        1000,
                        65536,
                        kMax,
                        kMin,
                        kMax / 2,
                        1LL << 31,
                        1LL << 32,
                        1LL << 40,
                        -(1LL << 31),
                        (1LL << 31) - 1});
  }
  double number() {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    return of<double>({1, 0, -1, 0.5, 2, -2, 3, 10, -0.0, 1e-3, 1e30, -1e30, kInf, -kInf, kNan, 255,
                       1e-40, 2147483648.0, 4e18});
  }
  std::string text() {
    return of<const char*>({"a", "", "1", "-7", "a,b", "SAME", "NCHW", "\xff"});
  }
  // Of few elements.
  Shape shape(size_t max_rank = 5) {
    std::vector<int64_t> dims(below(max_rank + 1));
    int64_t elements = 1;
    for (int64_t& dim : dims) {
      dim = of<int64_t>({2, 1, 0, 3, 4, 5, 7, 8, 17, 64});
      if (elements * dim > 4096) dim = 1;
      elements *= dim;
    }
    return Shape::make(dims).value();
  }
  // Any type but handles and variants, which are empty ones.
  Tensor tensor(DType dtype, Shape shape) {
    Tensor out = Tensor::zeros(dtype, std::move(shape)).value();
    auto fill = [&]<class T>(T (Choices::*draw)()) {
      for (T& element : out.mutable_data<T>()) element = (this->*draw)();
    };
    switch (dtype) {
      case DType::kString:
        fill(&Choices::text);
        break;
      case DType::kInt64:
        fill(&Choices::integer);
        break;
      case DType::kDouble:
        fill(&Choices::number);
        break;
      case DType::kInt32:
        for (int32_t& e : out.mutable_data<int32_t>()) e = static_cast<int32_t>(integer());
        break;
      case DType::kFloat:
        for (float& e : out.mutable_data<float>()) e = static_cast<float>(number());
        break;
      case DType::kBool:
        for (bool& e : out.mutable_data<bool>()) e = one_in(2);
        break;
      case DType::kResource:
      case DType::kVariant:
        break;
      default:
        for (size_t i = 0; i < out.bytes(); ++i)
          static_cast<uint8_t*>(out.mutable_raw())[i] = byte();
    }
    return out;
  }

 private:
  std::string_view bytes_;
  uint64_t seed_ = 0;
};

}  // namespace millrace
