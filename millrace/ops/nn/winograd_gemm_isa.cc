#include "millrace/ops/nn/winograd_gemm.h"
#include "millrace/ops/vector.h"

namespace millrace {
namespace {

constexpr int kSeen = WinogradLoops::kSeen, kTile = WinogradLoops::kTile;
constexpr int kWindow = WinogradLoops::kWindow;
// The points: their squares are 1/2 and 2.
constexpr float kNear = 0.70710678118654752F, kFar = 1.41421356237309505F;

#define MR_UNROLLED _Pragma("GCC unroll 8")

template <class V>
MR_VECTOR_FN V load_as(const float* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class V>
MR_VECTOR_FN void store_as(float* p, V v) {
  __builtin_memcpy(p, &v, sizeof v);
}

// f(V, c) for vectors of channels, then for single ones.
template <class F>
MR_VECTOR_FN void for_each_channel(int64_t channels, F f) {
  int64_t c = 0;
  for (; c + vec::kLanes<float> <= channels; c += vec::kLanes<float>) f(vec::Vec<float>{}, c);
  for (; c < channels; ++c) f(float{}, c);
}

// B' d
template <class V>
MR_VECTOR_FN void transform_image(const V* d, V* v) {
  const V near_even = d[4] - 2.0F * d[2], near_odd = d[3] - 2.0F * d[1];
  const V far_even = d[4] - 0.5F * d[2], far_odd = d[3] - 0.5F * d[1];
  v[0] = (d[0] + d[4]) - 2.5F * d[2];
  v[1] = near_even + kNear * near_odd;
  v[2] = near_even - kNear * near_odd;
  v[3] = far_even + kFar * far_odd;
  v[4] = far_even - kFar * far_odd;
  v[5] = (d[1] + d[5]) - 2.5F * d[3];
}

// G w
template <class V>
MR_VECTOR_FN void transform_filter(const V* w, V* u) {
  constexpr float kThird = 1.0F / 3, kSixth = 1.0F / 6;
  const V near_even = -2 * kThird * w[0] - kThird * w[2], near_odd = -2 * kThird * kNear * w[1];
  const V far_even = kSixth * w[0] + kThird * w[2], far_odd = kSixth * kFar * w[1];
  u[0] = w[0];
  u[1] = near_even + near_odd;
  u[2] = near_even - near_odd;
  u[3] = far_even + far_odd;
  u[4] = far_even - far_odd;
  u[5] = w[2];
}

// A' m
template <class V>
MR_VECTOR_FN void transform_result(const V* m, V* y) {
  const V near_sum = m[1] + m[2], near_difference = m[1] - m[2];
  const V far_sum = m[3] + m[4], far_difference = m[3] - m[4];
  y[0] = m[0] + near_sum + far_sum;
  y[1] = kNear * near_difference + kFar * far_difference;
  y[2] = 0.5F * near_sum + 2.0F * far_sum;
  y[3] = m[5] + 0.5F * kNear * near_difference + 2.0F * kFar * far_difference;
}

// H g
template <class V>
MR_VECTOR_FN void transform_gradient(const V* g, V* v) {
  constexpr float kThird = 1.0F / 3, kSixth = 1.0F / 6;
  const V near_even = -2 * kThird * g[0] - kThird * g[2], near_odd = g[1] + 0.5F * g[3];
  const V far_even = kSixth * g[0] + kThird * g[2], far_odd = g[1] + 2.0F * g[3];
  v[0] = g[0];
  v[1] = near_even - 2 * kThird * kNear * near_odd;
  v[2] = near_even + 2 * kThird * kNear * near_odd;
  v[3] = far_even + kSixth * kFar * far_odd;
  v[4] = far_even - kSixth * kFar * far_odd;
  v[5] = g[3];
}

// A' m, of three elements
template <class V>
MR_VECTOR_FN void transform_filter_gradient(const V* m, V* y) {
  const V near_sum = m[1] + m[2], near_difference = m[1] - m[2];
  const V far_sum = m[3] + m[4], far_difference = m[3] - m[4];
  y[0] = m[0] + near_sum + far_sum;
  y[1] = kNear * near_difference + kFar * far_difference;
  y[2] = m[5] + 0.5F * near_sum + 2.0F * far_sum;
}

// Element (i, j) of kFrom x kFrom is from(i, j); to(i, j, element) takes those of kTo x kTo: the
// transform of the columns, then of the rows.
template <class V, int kFrom, int kTo, class Transform, class From, class To>
MR_VECTOR_FN void transform_both(Transform transform, From from, To to) {
  V columns[kFrom][kTo];
  MR_UNROLLED
  for (int j = 0; j < kFrom; ++j) {
    V column[kFrom];
    MR_UNROLLED
    for (int i = 0; i < kFrom; ++i) column[i] = from(i, j);
    transform(column, columns[j]);
  }
  MR_UNROLLED
  for (int i = 0; i < kTo; ++i) {
    V row[kFrom], out[kTo];
    MR_UNROLLED
    for (int j = 0; j < kFrom; ++j) row[j] = columns[j][i];
    transform(row, out);
    MR_UNROLLED
    for (int j = 0; j < kTo; ++j) to(i, j, out[j]);
  }
}

// Zeros up to a whole vector.
MR_VECTOR_FN void fill_up(int64_t filters, float* v, int64_t step) {
  for (int64_t n = filters; n % vec::kLanes<float> != 0; ++n) {
    for (int e = 0; e < WinogradLoops::kElements; ++e) v[e * step + n] = 0;
  }
}

#define MR_INLINE_LAMBDA __attribute__((always_inline))

void image(const float* const* pixels, int64_t channels, float* v, int64_t step) {
  for_each_channel(channels, [&]<class V>(V, int64_t c) MR_INLINE_LAMBDA {
    transform_both<V, kSeen, kSeen>(
        [](const V* d, V* out) MR_INLINE_LAMBDA { transform_image(d, out); },
        [&](int i, int j) MR_INLINE_LAMBDA { return load_as<V>(pixels[i * kSeen + j] + c); },
        [&](int i, int j, V x) MR_INLINE_LAMBDA { store_as(v + (i * kSeen + j) * step + c, x); });
  });
}

void filter(const float* w, int64_t tap_step, int64_t filters, float* u, int64_t step) {
  for_each_channel(filters, [&]<class V>(V, int64_t n) MR_INLINE_LAMBDA {
    transform_both<V, kWindow, kSeen>(
        [](const V* taps, V* out) MR_INLINE_LAMBDA { transform_filter(taps, out); },
        [&](int i, int j)
            MR_INLINE_LAMBDA { return load_as<V>(w + (i * kWindow + j) * tap_step + n); },
        [&](int i, int j, V x) MR_INLINE_LAMBDA { store_as(u + (i * kSeen + j) * step + n, x); });
  });
  fill_up(filters, u, step);
}

void result(const float* m, int64_t step, int64_t filters, float* const* pixels) {
  for_each_channel(filters, [&]<class V>(V, int64_t n) MR_INLINE_LAMBDA {
    transform_both<V, kSeen, kTile>(
        [](const V* products, V* out) MR_INLINE_LAMBDA { transform_result(products, out); },
        [&](int i, int j) MR_INLINE_LAMBDA { return load_as<V>(m + (i * kSeen + j) * step + n); },
        [&](int i, int j, V x) MR_INLINE_LAMBDA { store_as(pixels[i * kTile + j] + n, x); });
  });
}

void gradient(const float* const* pixels, int64_t filters, float* v, int64_t step) {
  for_each_channel(filters, [&]<class V>(V, int64_t n) MR_INLINE_LAMBDA {
    transform_both<V, kTile, kSeen>(
        [](const V* g, V* out) MR_INLINE_LAMBDA { transform_gradient(g, out); },
        [&](int i, int j) MR_INLINE_LAMBDA { return load_as<V>(pixels[i * kTile + j] + n); },
        [&](int i, int j, V x) MR_INLINE_LAMBDA { store_as(v + (i * kSeen + j) * step + n, x); });
  });
  fill_up(filters, v, step);
}

void filter_gradient(const float* m, int64_t step, int64_t filters, bool accumulate, float* w,
                     int64_t tap_step) {
  for_each_channel(filters, [&]<class V>(V, int64_t n) MR_INLINE_LAMBDA {
    transform_both<V, kSeen, kWindow>(
        [](const V* sums, V* out) MR_INLINE_LAMBDA { transform_filter_gradient(sums, out); },
        [&](int i, int j) MR_INLINE_LAMBDA { return load_as<V>(m + (i * kSeen + j) * step + n); },
        [&](int i, int j, V x) MR_INLINE_LAMBDA {
          float* const to = w + (i * kWindow + j) * tap_step + n;
          store_as(to, accumulate ? load_as<V>(to) + x : x);
        });
  });
}

constexpr WinogradLoops kWinogradLoops = {&image, &filter, &result, &gradient, &filter_gradient};

}  // namespace

template <>
const WinogradLoops& isa_table<WinogradLoops, Isa::MR_ISA>() {
  return kWinogradLoops;
}

}  // namespace millrace
