#pragma once

#include <cstdint>
#include <vector>

#include "millrace/tensor/complex.h"

namespace millrace {

class KernelContext;

// Discrete Fourier transforms of one length: y[k] = sum of x[j] exp(-2 pi i j k / n). Powers of two
// by Cooley and Tukey's method, other lengths as convolutions (Bluestein's method). Constant once
// made: threads may share it.
class FftPlan {
 public:
  // length >= 1, at most 2^40.
  explicit FftPlan(int64_t length);

  int64_t length() const { return length_; }
  // Numbers that run() needs besides the data.
  int64_t scratch_size() const { return length_ == padded_ ? 0 : padded_; }
  // Transforms `data` in place; `inverse`: with exp(+...), without dividing by n.
  void run(Complex128* data, bool inverse, Complex128* scratch) const;

 private:
  void powers_of_two(Complex128* data) const;

  int64_t length_;
  int64_t padded_;                          // the power of two that is computed with
  std::vector<Complex128> roots_;           // exp(-2 pi i k / padded), k < padded / 2
  std::vector<Complex128> chirp_;           // exp(-pi i k^2 / length)
  std::vector<Complex128> chirp_spectrum_;  // of its conjugate, over padded
};

// Transforms `data`, `total` numbers, along a dimension of this length whose elements are `stride`
// apart, on all threads; the inverse divides by the length.
void transform_dim(KernelContext& ctx, Complex128* data, int64_t length, int64_t stride,
                   int64_t total, bool inverse);

}  // namespace millrace
