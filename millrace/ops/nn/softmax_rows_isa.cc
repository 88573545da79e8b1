#include <utility>

#include "millrace/ops/nn/softmax_rows.h"
#include "millrace/ops/vector.h"

namespace millrace {
namespace {

// As many running sums as the widest vector has lanes.
template <class T>
constexpr int kSums = 64 / static_cast<int>(sizeof(T));
template <class T>
constexpr int kVectors = kSums<T> / vec::kLanes<T>;

// kSums elements.
template <class T>
struct Block {
  vec::Vec<T> v[kVectors<T>];
};

template <class T>
MR_VECTOR_FN Block<T> load_block(const T* p) {
  Block<T> block;
  for (int i = 0; i < kVectors<T>; ++i) block.v[i] = vec::load(p + i * vec::kLanes<T>);
  return block;
}
template <class T>
MR_VECTOR_FN void store_block(T* p, const Block<T>& block) {
  for (int i = 0; i < kVectors<T>; ++i) vec::store(p + i * vec::kLanes<T>, block.v[i]);
}

// The first `count` elements of a block; the others are `filler`, and left as they are.
template <class T>
MR_VECTOR_FN Block<T> load_part(const T* p, int64_t count, T filler) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  const auto lanes = (1U << count) - 1;
  const vec::Vec<T> fill = vec::broadcast(filler);
  if constexpr (sizeof(T) == 4) {
    return {vec::bit_cast<vec::Vec<T>>(
        _mm512_mask_loadu_ps(vec::bit_cast<__m512>(fill), static_cast<__mmask16>(lanes), p))};
  } else {
    return {vec::bit_cast<vec::Vec<T>>(
        _mm512_mask_loadu_pd(vec::bit_cast<__m512d>(fill), static_cast<__mmask8>(lanes), p))};
  }
#else
  T part[kSums<T>];
  for (int i = 0; i < kSums<T>; ++i) part[i] = filler;
  for (int64_t i = 0; i < count; ++i) part[i] = p[i];
  return load_block(part);
#endif
}
template <class T>
MR_VECTOR_FN void store_part(T* p, int64_t count, const Block<T>& block) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  const auto lanes = (1U << count) - 1;
  if constexpr (sizeof(T) == 4) {
    _mm512_mask_storeu_ps(p, static_cast<__mmask16>(lanes), vec::bit_cast<__m512>(block.v[0]));
  } else {
    _mm512_mask_storeu_pd(p, static_cast<__mmask8>(lanes), vec::bit_cast<__m512d>(block.v[0]));
  }
#else
  T part[kSums<T>];
  store_block(part, block);
  for (int64_t i = 0; i < count; ++i) p[i] = part[i];
#endif
}

// y = f(x) by blocks; what is missing in the last is filled up with `filler` and left out of y.
template <class T, class F>
MR_VECTOR_FN void map_row(const T* x, int64_t n, T filler, T* y, F f) {
  int64_t i = 0;
  for (; i + kSums<T> <= n; i += kSums<T>) store_block(y + i, f(load_block(x + i)));
  if (i < n) store_part(y + i, n - i, f(load_part(x + i, n - i, filler)));
}

// f(block), f(block), ... of a row.
template <class T, class F>
MR_VECTOR_FN void for_each_block(const T* x, int64_t n, T filler, F f) {
  int64_t i = 0;
  for (; i + kSums<T> <= n; i += kSums<T>) f(load_block(x + i));
  if (i < n) f(load_part(x + i, n - i, filler));
}

// Lane k + half in place of lane k.
template <int half, class V, size_t... lanes>
MR_VECTOR_FN V upper_lanes(V v, std::index_sequence<lanes...>) {
  return __builtin_shufflevector(v, v, static_cast<int>((lanes + half) % sizeof...(lanes))...);
}
template <class T, int half, class F>
MR_VECTOR_FN T fold_lanes(vec::Vec<T> v, F f) {
  v = f(v, upper_lanes<half>(v, std::make_index_sequence<vec::kLanes<T>>()));
  if constexpr (half > 1) {
    return fold_lanes<T, half / 2>(v, f);
  } else {
    return v[0];
  }
}
// All elements of a block folded, halves first: the same order for every width of vectors.
template <class T, class F>
MR_VECTOR_FN T fold_block(Block<T> block, F f) {
  for (int n = kVectors<T> / 2; n > 0; n /= 2) {
    for (int i = 0; i < n; ++i) block.v[i] = f(block.v[i], block.v[i + n]);
  }
  return fold_lanes<T, vec::kLanes<T> / 2>(block.v[0], f);
}

struct Max {
  template <class V>
  MR_VECTOR_FN V operator()(V a, V b) const {
    return vec::max(a, b);
  }
};
struct Plus {
  template <class V>
  MR_VECTOR_FN V operator()(V a, V b) const {
    return a + b;
  }
};

template <class T>
constexpr T kLowest = static_cast<T>(-__builtin_inf());

// The largest element, NaN if there is one, minus infinity for n = 0.
template <class T>
T largest_of(const T* x, int64_t n) {
  Block<T> largest;
  for (auto& v : largest.v) v = vec::broadcast(kLowest<T>);
  for_each_block<T>(
      x, n, kLowest<T>, [&](const Block<T>& block) __attribute__((always_inline)) {
        for (int i = 0; i < kVectors<T>; ++i) largest.v[i] = vec::max(largest.v[i], block.v[i]);
      });
  return fold_block<T>(largest, Max());
}

// exp(x - shift), added to the sums.
template <class T>
MR_VECTOR_FN Block<T> exp_block(Block<T> block, T shift, Block<T>& sums) {
  for (int i = 0; i < kVectors<T>; ++i) {
    block.v[i] = vec::exp(block.v[i] - shift);
    sums.v[i] += block.v[i];
  }
  return block;
}

template <class T>
MR_VECTOR_FN Block<T> scale_block(Block<T> block, T factor) {
  for (auto& v : block.v) v *= factor;
  return block;
}

// What a row's loss is made of.
template <class T>
struct RowSums {
  T largest;
  T sum;  // of exp(x - largest)
};

// Writes exp(x - largest) to y.
template <class T>
RowSums<T> exponentials(const T* x, int64_t n, T* y) {
  const T largest = largest_of(x, n);
  Block<T> sums = {};
  map_row<T>(
      x, n, kLowest<T>, y, [&](const Block<T>& block) __attribute__((always_inline)) {
        return exp_block(block, largest, sums);
      });
  return {largest, fold_block<T>(sums, Plus())};
}

template <class T>
void scale_row(T* y, int64_t n, T factor) {
  map_row<T>(
      y, n, T{0}, y, [&](const Block<T>& block) __attribute__((always_inline)) {
        return scale_block(block, factor);
      });
}

template <class T>
void softmax(const T* x, int64_t n, T* y) {
  if (n <= kSums<T>) {  // stays in registers
    const Block<T> block = load_part(x, n, kLowest<T>);
    Block<T> sums = {};
    const Block<T> terms = exp_block(block, fold_block<T>(block, Max()), sums);
    store_part(y, n, scale_block(terms, 1 / fold_block<T>(sums, Plus())));
    return;
  }
  scale_row(y, n, 1 / exponentials(x, n, y).sum);
}

template <class T>
MR_VECTOR_FN T log_of(T x) {
  return static_cast<T>(sizeof(T) == 4 ? __builtin_logf(x) : __builtin_log(x));
}

template <class T>
void log_softmax(const T* x, int64_t n, T* y) {
  const T largest = largest_of(x, n);
  Block<T> sums = {};
  for_each_block<T>(
      x, n, kLowest<T>, [&](const Block<T>& block) __attribute__((always_inline)) {
        exp_block(block, largest, sums);
      });
  const T log_sum = log_of(fold_block<T>(sums, Plus()));
  map_row<T>(
      x, n, T{0}, y, [&](Block<T> block) __attribute__((always_inline)) {
        for (auto& v : block.v) v = (v - largest) - log_sum;
        return block;
      });
}

template <class T>
T cross_entropy(const T* x, const T* labels, int64_t n, T* y) {
  const RowSums<T> row = exponentials(x, n, y);
  const T factor = 1 / row.sum, log_sum = log_of(row.sum);
  Block<T> losses = {};
  const auto subtract = [&](const Block<T>& logits, const Block<T>& label, Block<T> terms)
      __attribute__((always_inline)) {
    for (int i = 0; i < kVectors<T>; ++i) {
      const vec::Vec<T> zero = {};
      const vec::Vec<T> loss = label.v[i] * (log_sum - (logits.v[i] - row.largest));
      losses.v[i] += label.v[i] != zero ? loss : zero;
      terms.v[i] = terms.v[i] * factor - label.v[i];
    }
    return terms;
  };
  int64_t i = 0;
  for (; i + kSums<T> <= n; i += kSums<T>) {
    store_block(y + i, subtract(load_block(x + i), load_block(labels + i), load_block(y + i)));
  }
  if (i < n) {
    const auto part = [&](const T* p) __attribute__((always_inline)) {
      return load_part(p + i, n - i, T{0});
    };
    store_part(y + i, n - i, subtract(part(x), part(labels), part(y)));
  }
  return fold_block<T>(losses, Plus());
}

template <class T>
T class_cross_entropy(const T* x, int64_t label, int64_t n, T* y) {
  const RowSums<T> row = exponentials(x, n, y);
  const T loss = log_of(row.sum) - (x[label] - row.largest);
  scale_row(y, n, 1 / row.sum);
  y[label] -= 1;
  return loss;
}

template <class T>
constexpr SoftmaxRows<T> kSoftmaxRows = {&softmax<T>, &log_softmax<T>, &cross_entropy<T>,
                                         &class_cross_entropy<T>};

}  // namespace

template <>
const SoftmaxRows<float>& isa_table<SoftmaxRows<float>, Isa::MR_ISA>() {
  return kSoftmaxRows<float>;
}
template <>
const SoftmaxRows<double>& isa_table<SoftmaxRows<double>, Isa::MR_ISA>() {
  return kSoftmaxRows<double>;
}

}  // namespace millrace
