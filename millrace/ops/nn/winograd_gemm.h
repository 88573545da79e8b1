#pragma once

#include <cstdint>

#include "millrace/ops/isa_table.h"

namespace millrace {

// The transforms of Winograd's convolutions F(tile x tile, window x window), channels in vectors. A
// tile of the result is, in each channel, A' [sum over channels of (G w G') * (B' d B)] A, where d
// are the 6x6 pixels that its windows see, w is a filter, and * multiplies 36 pairs of elements
// where the definition multiplies (tile window)^2. The gradient of a filter is a convolution of
// that kind too, with a tile g of the result's gradient as its filter. The matrices are those of
// polynomials at the points 0, +-sqrt(1/2), +-sqrt(2) and infinity: of all the points that were
// tried those with the least error.
//
// Element e of 36 (row e / 6, column e % 6) of what is transformed lies `step` after the one
// before.
struct WinogradLoops {
  static constexpr int kSeen = 6, kElements = kSeen * kSeen;
  int window, tile;

  // v[e * step + c] = element e of B' d B, for c < channels, where pixels[e] + c is element e of d.
  void (*image)(const float* const* pixels, int64_t channels, float* v, int64_t step);
  // u[e * step + n] = element e of G w G', for n < filters, where w[t * tap_step + n] is element t
  // of w; and 0 from there up to the next multiple of a vector's lanes.
  void (*filter)(const float* w, int64_t tap_step, int64_t filters, float* u, int64_t step);
  // pixels[e] + n is element e of A' m A, for n < filters, where m[e * step + n] is element e of m.
  void (*result)(const float* m, int64_t step, int64_t filters, float* const* pixels);

  // The gradient of a filter. As filter(), of g, where pixels[e] + n is element e of g.
  void (*gradient)(const float* const* pixels, int64_t filters, float* v, int64_t step);
  // w[t * tap_step + n] is, or has added to it, element t of A' m A, for n < filters.
  void (*filter_gradient)(const float* m, int64_t step, int64_t filters, bool accumulate, float* w,
                          int64_t tap_step);
};

// F(4x4, 3x3) and F(2x2, 5x5).
struct WinogradTable {
  WinogradLoops three, five;
};

}  // namespace millrace
