#include "millrace/ops/nn/batch_norm_loops.h"
#include "millrace/ops/vector.h"

namespace millrace {
namespace {

template <class V, class T>
MR_VECTOR_FN V load_as(const T* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class V, class T>
MR_VECTOR_FN void store_as(T* p, V v) {
  __builtin_memcpy(p, &v, sizeof v);
}

// Calls body(V, first channel) for vectors, then for single channels.
template <class T, class Body>
MR_VECTOR_FN void for_each_channels(int64_t channels, Body body) {
  int64_t c = 0;
  for (; c + vec::kLanes<T> <= channels; c += vec::kLanes<T>) body(vec::Vec<T>{}, c);
  for (; c < channels; ++c) body(T{}, c);
}

// sums[c] += the sum of term(row, c) over rows, four at a time.
template <class T, class Term>
MR_VECTOR_FN void sum_rows(int64_t rows, int64_t channels, T* sums, Term term) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    for_each_channels<T>(
        channels, [&]<class V>(V, int64_t c) __attribute__((always_inline)) {
          const V pair = term(V{}, r, c) + term(V{}, r + 1, c);
          const V other = term(V{}, r + 2, c) + term(V{}, r + 3, c);
          store_as(sums + c, load_as<V>(sums + c) + (pair + other));
        });
  }
  for (; r < rows; ++r) {
    for_each_channels<T>(
        channels, [&]<class V>(V, int64_t c) __attribute__((always_inline)) {
          store_as(sums + c, load_as<V>(sums + c) + term(V{}, r, c));
        });
  }
}

// Two sets of `added` and `count` elements become one: Chan, Golub and LeVeque, "Updating formulae
// and a pairwise algorithm for computing sample variances".
template <class V, class T>
MR_VECTOR_FN void merge(int64_t count, int64_t added, const T* added_mean, const T* added_squares,
                        T* mean, T* squares) {
  const double total = static_cast<double>(count + added);
  const T weight = static_cast<T>(static_cast<double>(added) / total);
  const T spread = static_cast<T>(static_cast<double>(count) * static_cast<double>(added) / total);
  const V old = load_as<V>(mean), delta = load_as<V>(added_mean) - old;
  store_as(mean, old + delta * weight);
  store_as(squares, load_as<V>(squares) + (load_as<V>(added_squares) + delta * delta * spread));
}

template <class T>
void add_statistics(const T* x, int64_t rows, int64_t channels, int64_t count, T* scratch, T* mean,
                    T* squares) {
  T* const block_mean = scratch;
  T* const block_squares = scratch + channels;
  for (int64_t c = 0; c < 2 * channels; ++c) scratch[c] = 0;
  sum_rows(
      rows, channels,
      block_mean, [&]<class V>(V, int64_t r, int64_t c) __attribute__((always_inline)) {
        return load_as<V>(x + r * channels + c);
      });
  for (int64_t c = 0; c < channels; ++c) block_mean[c] /= static_cast<T>(rows);
  sum_rows(
      rows, channels,
      block_squares, [&]<class V>(V, int64_t r, int64_t c) __attribute__((always_inline)) {
        const V d = load_as<V>(x + r * channels + c) - load_as<V>(block_mean + c);
        return d * d;
      });
  for_each_channels<T>(
      channels, [&]<class V>(V, int64_t c) __attribute__((always_inline)) {
        merge<V>(count, rows, block_mean + c, block_squares + c, mean + c, squares + c);
      });
}

template <class T>
void normalize(const T* x, int64_t rows, int64_t channels, const T* mean, const T* scale,
               const T* offset, T* y) {
  for (int64_t r = 0; r < rows; ++r, x += channels, y += channels) {
    for_each_channels<T>(
        channels, [&]<class V>(V, int64_t c) __attribute__((always_inline)) {
          store_as(y + c, (load_as<V>(x + c) - load_as<V>(mean + c)) * load_as<V>(scale + c) +
                              load_as<V>(offset + c));
        });
  }
}

template <class T>
void add_products(const T* dy, const T* x, int64_t rows, int64_t channels, const T* mean, T* sum,
                  T* product) {
  sum_rows(
      rows, channels, sum, [&]<class V>(V, int64_t r, int64_t c) __attribute__((always_inline)) {
        return load_as<V>(dy + r * channels + c);
      });
  sum_rows(
      rows, channels,
      product, [&]<class V>(V, int64_t r, int64_t c) __attribute__((always_inline)) {
        const int64_t at = r * channels + c;
        return load_as<V>(dy + at) * (load_as<V>(x + at) - load_as<V>(mean + c));
      });
}

template <class T>
void differentiate(const T* dy, const T* x, int64_t rows, int64_t channels, const T* mean,
                   const T* shift, const T* slope, const T* scale, T* dx) {
  for (int64_t r = 0; r < rows; ++r, dy += channels, x += channels, dx += channels) {
    for_each_channels<T>(
        channels, [&]<class V>(V, int64_t c) __attribute__((always_inline)) {
          const V centred = load_as<V>(x + c) - load_as<V>(mean + c);
          store_as(dx + c,
                   (load_as<V>(dy + c) - load_as<V>(shift + c) - centred * load_as<V>(slope + c)) *
                       load_as<V>(scale + c));
        });
  }
}

// As many running sums as the widest vector has lanes, folded halves first.
template <class T>
constexpr int kPlaneSums = 64 / static_cast<int>(sizeof(T));

// The sum of term(i) over [0, n): vectors of as many lanes on every instruction set.
template <class T, class Term>
MR_VECTOR_FN T sum_plane(int64_t n, Term term) {
  constexpr int kVectors = kPlaneSums<T> / vec::kLanes<T>;
  vec::Vec<T> sums[kVectors] = {};
  int64_t i = 0;
  for (; i + kPlaneSums<T> <= n; i += kPlaneSums<T>) {
    for (int v = 0; v < kVectors; ++v) sums[v] += term(vec::Vec<T>{}, i + v * vec::kLanes<T>);
  }
  T lanes[kPlaneSums<T>];
  __builtin_memcpy(lanes, sums, sizeof lanes);
  for (int half = kPlaneSums<T> / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  T sum = lanes[0];
  for (; i < n; ++i) sum += term(T{}, i);
  return sum;
}

template <class T>
void add_plane_statistics(const T* x, int64_t n, int64_t count, T* mean, T* squares) {
  const T block_mean = sum_plane<T>(
                           n, [&]<class V>(V, int64_t i)
                                  __attribute__((always_inline)) { return load_as<V>(x + i); }) /
                       static_cast<T>(n);
  const T block_squares = sum_plane<T>(
      n, [&]<class V>(V, int64_t i) __attribute__((always_inline)) {
        const V d = load_as<V>(x + i) - block_mean;
        return d * d;
      });
  merge<T>(count, n, &block_mean, &block_squares, mean, squares);
}

template <class T>
void normalize_plane(const T* x, int64_t n, T mean, T scale, T offset, T* y) {
  for_each_channels<T>(
      n, [&]<class V>(V, int64_t i) __attribute__((always_inline)) {
        store_as(y + i, (load_as<V>(x + i) - mean) * scale + offset);
      });
}

template <class T>
void add_plane_products(const T* dy, const T* x, int64_t n, T mean, T* sum, T* product) {
  *sum += sum_plane<T>(
      n, [&]<class V>(V, int64_t i) __attribute__((always_inline)) { return load_as<V>(dy + i); });
  *product += sum_plane<T>(
      n, [&]<class V>(V, int64_t i) __attribute__((always_inline)) {
        return load_as<V>(dy + i) * (load_as<V>(x + i) - mean);
      });
}

template <class T>
void differentiate_plane(const T* dy, const T* x, int64_t n, T mean, T shift, T slope, T scale,
                         T* dx) {
  for_each_channels<T>(
      n, [&]<class V>(V, int64_t i) __attribute__((always_inline)) {
        const V centred = load_as<V>(x + i) - mean;
        store_as(dx + i, (load_as<V>(dy + i) - shift - centred * slope) * scale);
      });
}

template <class T>
constexpr BatchNormLoops<T> kBatchNormLoops = {
    &add_statistics<T>,       &normalize<T>,       &add_products<T>,       &differentiate<T>,
    &add_plane_statistics<T>, &normalize_plane<T>, &add_plane_products<T>, &differentiate_plane<T>};

}  // namespace

template <>
const BatchNormLoops<float>& isa_table<BatchNormLoops<float>, Isa::MR_ISA>() {
  return kBatchNormLoops<float>;
}
template <>
const BatchNormLoops<double>& isa_table<BatchNormLoops<double>, Isa::MR_ISA>() {
  return kBatchNormLoops<double>;
}

}  // namespace millrace
