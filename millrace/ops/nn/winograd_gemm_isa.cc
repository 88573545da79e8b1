#include "millrace/ops/nn/winograd_gemm.h"
#include "millrace/ops/vector.h"

namespace millrace {
namespace {

constexpr int kSeen = WinogradLoops::kSeen;
// The points: their squares are 1/2 and 2.
constexpr float kNear = 0.70710678118654752F, kFar = 1.41421356237309505F;

#define MR_UNROLLED _Pragma("GCC unroll 8")
#define MR_INLINE_LAMBDA __attribute__((always_inline))

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

template <int kCount>
struct Floats {
  typedef float Type __attribute__((vector_size(kCount * sizeof(float))));
};

// f(V, c) for vectors of channels, then for halves and quarters of one, then for single ones.
template <int kCount = vec::kLanes<float>, class F>
MR_VECTOR_FN void for_each_channel(int64_t channels, F f, int64_t c = 0) {
  if constexpr (kCount >= 4) {
    for (; c + kCount <= channels; c += kCount) f(typename Floats<kCount>::Type{}, c);
    if (c < channels) for_each_channel<kCount / 2>(channels, f, c);
  } else {
    for (; c < channels; ++c) f(float{}, c);
  }
}

// B' d
struct Expand {
  template <class V>
  MR_VECTOR_FN void operator()(const V* d, V* v) const {
    const V near_even = d[4] - 2.0F * d[2], near_odd = d[3] - 2.0F * d[1];
    const V far_even = d[4] - 0.5F * d[2], far_odd = d[3] - 0.5F * d[1];
    v[0] = (d[0] + d[4]) - 2.5F * d[2];
    v[1] = near_even + kNear * near_odd;
    v[2] = near_even - kNear * near_odd;
    v[3] = far_even + kFar * far_odd;
    v[4] = far_even - kFar * far_odd;
    v[5] = (d[1] + d[5]) - 2.5F * d[3];
  }
};

// G x: the polynomial of these coefficients at the points, over the products of their distances,
// which are 1, -3/2 and 6.
template <int kCount>
struct Evaluate {
  template <class V>
  MR_VECTOR_FN void operator()(const V* x, V* u) const {
    V near_even = x[0], near_odd = x[1], far_even = x[0], far_odd = x[1];
    float near = 0.5F, far = 2;
    MR_UNROLLED
    for (int i = 2; i < kCount; i += 2, near *= 0.5F, far *= 2) {
      near_even += near * x[i];
      far_even += far * x[i];
      if (i + 1 < kCount) {
        near_odd += near * x[i + 1];
        far_odd += far * x[i + 1];
      }
    }
    constexpr float kNearScale = -2.0F / 3, kFarScale = 1.0F / 6;
    near_even *= kNearScale;
    far_even *= kFarScale;
    u[0] = x[0];
    u[1] = near_even + kNearScale * kNear * near_odd;
    u[2] = near_even - kNearScale * kNear * near_odd;
    u[3] = far_even + kFarScale * kFar * far_odd;
    u[4] = far_even - kFarScale * kFar * far_odd;
    u[5] = x[kCount - 1];
  }
};

// A' m: sums weighted by the powers of the points.
template <int kCount>
struct Collect {
  template <class V>
  MR_VECTOR_FN void operator()(const V* m, V* y) const {
    const V near_sum = m[1] + m[2], near_difference = m[1] - m[2];
    const V far_sum = m[3] + m[4], far_difference = m[3] - m[4];
    y[0] = m[0] + near_sum + far_sum;
    float near = 1, far = 1;
    MR_UNROLLED
    for (int i = 1; i < kCount; ++i) {
      if (i % 2 == 1) {
        y[i] = near * kNear * near_difference + far * kFar * far_difference;
      } else {
        near *= 0.5F;
        far *= 2;
        y[i] = near * near_sum + far * far_sum;
      }
    }
    y[kCount - 1] += m[5];
  }
};

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

void image(const float* const* pixels, int64_t channels, float* v, int64_t step) {
  for_each_channel(channels, [&]<class V>(V, int64_t c) MR_INLINE_LAMBDA {
    transform_both<V, kSeen, kSeen>(
        Expand(),
        [&](int i, int j) MR_INLINE_LAMBDA { return load_as<V>(pixels[i * kSeen + j] + c); },
        [&](int i, int j, V x) MR_INLINE_LAMBDA { store_as(v + (i * kSeen + j) * step + c, x); });
  });
}

template <int kWindow>
void filter(const float* w, int64_t tap_step, int64_t filters, float* u, int64_t step) {
  for_each_channel(filters, [&]<class V>(V, int64_t n) MR_INLINE_LAMBDA {
    transform_both<V, kWindow, kSeen>(
        Evaluate<kWindow>(),
        [&](int i, int j)
            MR_INLINE_LAMBDA { return load_as<V>(w + (i * kWindow + j) * tap_step + n); },
        [&](int i, int j, V x) MR_INLINE_LAMBDA { store_as(u + (i * kSeen + j) * step + n, x); });
  });
  fill_up(filters, u, step);
}

template <int kTile>
void result(const float* m, int64_t step, int64_t filters, float* const* pixels) {
  for_each_channel(filters, [&]<class V>(V, int64_t n) MR_INLINE_LAMBDA {
    transform_both<V, kSeen, kTile>(
        Collect<kTile>(),
        [&](int i, int j) MR_INLINE_LAMBDA { return load_as<V>(m + (i * kSeen + j) * step + n); },
        [&](int i, int j, V x) MR_INLINE_LAMBDA { store_as(pixels[i * kTile + j] + n, x); });
  });
}

template <int kTile>
void gradient(const float* const* pixels, int64_t filters, float* v, int64_t step) {
  for_each_channel(filters, [&]<class V>(V, int64_t n) MR_INLINE_LAMBDA {
    transform_both<V, kTile, kSeen>(
        Evaluate<kTile>(),
        [&](int i, int j) MR_INLINE_LAMBDA { return load_as<V>(pixels[i * kTile + j] + n); },
        [&](int i, int j, V x) MR_INLINE_LAMBDA { store_as(v + (i * kSeen + j) * step + n, x); });
  });
  fill_up(filters, v, step);
}

template <int kWindow>
void filter_gradient(const float* m, int64_t step, int64_t filters, bool accumulate, float* w,
                     int64_t tap_step) {
  for_each_channel(filters, [&]<class V>(V, int64_t n) MR_INLINE_LAMBDA {
    transform_both<V, kSeen, kWindow>(
        Collect<kWindow>(),
        [&](int i, int j) MR_INLINE_LAMBDA { return load_as<V>(m + (i * kSeen + j) * step + n); },
        [&](int i, int j, V x) MR_INLINE_LAMBDA {
          float* const to = w + (i * kWindow + j) * tap_step + n;
          store_as(to, accumulate ? load_as<V>(to) + x : x);
        });
  });
}

template <int kWindow, int kTile = kSeen + 1 - kWindow>
constexpr WinogradLoops kLoops = {kWindow,
                                  kTile,
                                  &image,
                                  &filter<kWindow>,
                                  &result<kTile>,
                                  &gradient<kTile>,
                                  &filter_gradient<kWindow>};

constexpr WinogradTable kTable = {kLoops<3>, kLoops<5>};

}  // namespace

template <>
const WinogradTable& isa_table<WinogradTable, Isa::MR_ISA>() {
  return kTable;
}

}  // namespace millrace
