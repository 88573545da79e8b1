#include "millrace/ops/math/fft_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "millrace/kernel/kernel.h"

namespace millrace {
namespace {

constexpr double kPi = 3.14159265358979323846;

// std::complex multiplies with care for infinities, which costs much.
Complex128 product(Complex128 a, Complex128 b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

void conjugate(Complex128* data, int64_t n) {
  for (int64_t i = 0; i < n; ++i) data[i] = std::conj(data[i]);
}

}  // namespace

FftPlan::FftPlan(int64_t length) : length_(length), padded_(length) {
  const auto n = static_cast<uint64_t>(length);
  if (!std::has_single_bit(n)) padded_ = static_cast<int64_t>(std::bit_ceil(2 * n - 1));
  const auto root = [](int64_t k, int64_t of) {
    const double angle = -2 * kPi * static_cast<double>(k) / static_cast<double>(of);
    return Complex128(std::cos(angle), std::sin(angle));
  };
  roots_.reserve(static_cast<size_t>(padded_ / 2));
  for (int64_t k = 0; k < padded_ / 2; ++k) roots_.push_back(root(k, padded_));
  if (padded_ == length_) return;
  chirp_.reserve(n);
  int64_t square = 0;  // k^2 modulo 2 n
  for (int64_t k = 0; k < length_; ++k) {
    chirp_.push_back(root(square, 2 * length_));
    square = (square + 2 * k + 1) % (2 * length_);
  }
  chirp_spectrum_.resize(static_cast<size_t>(padded_));
  for (size_t k = 0; k < n; ++k) {
    chirp_spectrum_[k] = std::conj(chirp_[k]);
    if (k > 0) chirp_spectrum_[static_cast<size_t>(padded_) - k] = std::conj(chirp_[k]);
  }
  powers_of_two(chirp_spectrum_.data());
}

void FftPlan::run(Complex128* data, bool inverse, Complex128* scratch) const {
  if (inverse) conjugate(data, length_);
  if (padded_ == length_) {
    powers_of_two(data);
  } else {
    for (int64_t k = 0; k < length_; ++k)
      scratch[k] = product(data[k], chirp_[static_cast<size_t>(k)]);
    std::fill(scratch + length_, scratch + padded_, Complex128());
    powers_of_two(scratch);
    // The inverse transform as the conjugate of that of the conjugate.
    for (int64_t k = 0; k < padded_; ++k) {
      scratch[k] = std::conj(product(scratch[k], chirp_spectrum_[static_cast<size_t>(k)]));
    }
    powers_of_two(scratch);
    const double scale = 1 / static_cast<double>(padded_);
    for (int64_t k = 0; k < length_; ++k) {
      data[k] = product(std::conj(scratch[k]), chirp_[static_cast<size_t>(k)]) * scale;
    }
  }
  if (inverse) conjugate(data, length_);
}

void FftPlan::powers_of_two(Complex128* data) const {
  const int64_t n = padded_;
  for (int64_t i = 1, reversed = 0; i < n; ++i) {
    int64_t bit = n >> 1;
    for (; (reversed & bit) != 0; bit >>= 1) reversed ^= bit;
    reversed ^= bit;
    if (i < reversed) std::swap(data[i], data[reversed]);
  }
  for (int64_t half = 1; half < n; half *= 2) {
    const int64_t step = n / (2 * half);
    for (int64_t begin = 0; begin < n; begin += 2 * half) {
      for (int64_t k = 0; k < half; ++k) {
        const Complex128 even = data[begin + k];
        const Complex128 odd =
            product(data[begin + half + k], roots_[static_cast<size_t>(k * step)]);
        data[begin + k] = even + odd;
        data[begin + half + k] = even - odd;
      }
    }
  }
}

void transform_dim(KernelContext& ctx, Complex128* data, int64_t length, int64_t stride,
                   int64_t total, bool inverse) {
  if (length == 1) return;
  const FftPlan plan(length);
  const double scale = inverse ? 1 / static_cast<double>(length) : 1;
  const double cost = 50 * static_cast<double>(length + plan.scratch_size());
  ctx.parallel_for(total / length, cost, [&](int64_t begin, int64_t end) {
    std::vector<Complex128> line(static_cast<size_t>(length + plan.scratch_size()));
    for (int64_t i = begin; i < end; ++i) {
      Complex128* const first = data + i / stride * stride * length + i % stride;
      for (int64_t k = 0; k < length; ++k) line[static_cast<size_t>(k)] = first[k * stride];
      plan.run(line.data(), inverse, line.data() + length);
      for (int64_t k = 0; k < length; ++k) {
        first[k * stride] = line[static_cast<size_t>(k)] * scale;
      }
    }
  });
}

}  // namespace millrace
