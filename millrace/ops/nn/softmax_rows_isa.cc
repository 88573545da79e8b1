#include <utility>

#include "millrace/ops/nn/softmax_rows.h"
#include "millrace/ops/transpose_vectors.h"
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

// The largest of numbers, in fewer steps than vec::max takes. Where there may be a NaN the sum of
// all that was seen is one, and who asks starts again with vec::max.
template <class T>
struct Largest {
  vec::Vec<T> v = vec::broadcast(kLowest<T>), sum = {};

  MR_VECTOR_FN void see(vec::Vec<T> x) {
    v = vec::greater(v, x);
    sum += x;
  }
  MR_VECTOR_FN bool valid() const { return !vec::any(sum != sum); }
};

// The largest element, NaN if there is one, minus infinity for n = 0.
template <class T>
T largest_of(const T* x, int64_t n) {
  Block<T> largest;
  Largest<T> numbers[kVectors<T>];
  for_each_block<T>(
      x, n, kLowest<T>, [&](const Block<T>& block) __attribute__((always_inline)) {
        for (int i = 0; i < kVectors<T>; ++i) numbers[i].see(block.v[i]);
      });
  bool valid = true;
  for (int i = 0; i < kVectors<T>; ++i) {
    largest.v[i] = numbers[i].v;
    valid = valid && numbers[i].valid();
  }
  if (!valid) {
    for (auto& v : largest.v) v = vec::broadcast(kLowest<T>);
    for_each_block<T>(
        x, n, kLowest<T>, [&](const Block<T>& block) __attribute__((always_inline)) {
          for (int i = 0; i < kVectors<T>; ++i) largest.v[i] = vec::max(largest.v[i], block.v[i]);
        });
  }
  return fold_block<T>(largest, Max());
}

// e^x of what is not positive, or NaN; zero where that is no normal number. It takes fewer steps
// than vec::exp.
template <class V>
MR_VECTOR_FN V exp_of_shifted(V x) {
  if constexpr (sizeof(vec::Element<V>) == 4) {
    const vec::ExpParts<V> parts = vec::exp_parts(x);
    const V scale = vec::exp2_int<V>(parts.n);
    return x < vec::lit<V>(-87.3) ? V{} : (parts.expm1_r + vec::lit<V>(1)) * scale;
  } else {
    return vec::exp(x);
  }
}

// exp(x - shift), added to the sums.
template <class T>
MR_VECTOR_FN Block<T> exp_block(Block<T> block, T shift, Block<T>& sums) {
  for (int i = 0; i < kVectors<T>; ++i) {
    block.v[i] = exp_of_shifted(block.v[i] - shift);
    sums.v[i] += block.v[i];
  }
  return block;
}

template <class T>
MR_VECTOR_FN Block<T> scale_block(Block<T> block, T factor) {
  for (auto& v : block.v) v *= factor;
  return block;
}

// Rows up to here are added from the first element to the last, longer ones in kSums sums. So many
// short rows can be computed side by side, one in each lane, as if each were alone.
constexpr int64_t kShort = 32;

// What a row's loss is made of.
template <class T>
struct RowSums {
  T largest;
  T sum;  // of exp(x - largest)
};

// The sum of exp(x - largest), which is written to y.
template <class T>
RowSums<T> exponentials(const T* x, int64_t n, T* y) {
  const T largest = largest_of(x, n);
  Block<T> sums = {};
  map_row<T>(
      x, n, kLowest<T>, y, [&](const Block<T>& block) __attribute__((always_inline)) {
        return exp_block(block, largest, sums);
      });
  if (n > kShort) return {largest, fold_block<T>(sums, Plus())};
  T sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += y[i];
  return {largest, sum};
}

// y = (x - largest) - log_sum
template <class T>
void shift_row(const T* x, int64_t n, T largest, T log_sum, T* y) {
  map_row<T>(
      x, n, T{0}, y, [&](Block<T> block) __attribute__((always_inline)) {
        for (auto& v : block.v) v = (v - largest) - log_sum;
        return block;
      });
}

template <class T>
void scale_row(T* y, int64_t n, T factor) {
  map_row<T>(
      y, n, T{0}, y, [&](const Block<T>& block) __attribute__((always_inline)) {
        return scale_block(block, factor);
      });
}

// -label log(probability) for scalars and vectors, nothing where the label is zero.
template <class V>
MR_VECTOR_FN V loss_of(V label, V log_sum, V shifted) {
  return label != V{} ? label * (log_sum - shifted) : V{};
}

template <class T>
void softmax_row(const T* x, int64_t n, T* y) {
  scale_row(y, n, 1 / exponentials(x, n, y).sum);
}

// What exponentials() gives, alone.
template <class T>
RowSums<T> sums_of_row(const T* x, int64_t n) {
  if (n <= kShort) {
    T terms[kShort];
    return exponentials(x, n, terms);
  }
  const T largest = largest_of(x, n);
  Block<T> sums = {};
  for_each_block<T>(
      x, n, kLowest<T>, [&](const Block<T>& block) __attribute__((always_inline)) {
        exp_block(block, largest, sums);
      });
  return {largest, fold_block<T>(sums, Plus())};
}

template <class T>
void log_softmax_row(const T* x, int64_t n, T* y) {
  if (n > kShort) {
    const RowSums<T> row = sums_of_row(x, n);
    return shift_row(x, n, row.largest, vec::log(row.sum), y);
  }
  T terms[kShort];
  const RowSums<T> row = exponentials(x, n, terms);
  shift_row(x, n, row.largest, vec::log(row.sum), y);
}

template <class T>
T cross_entropy_row(const T* x, const T* labels, int64_t n, T* y) {
  const RowSums<T> row = exponentials(x, n, y);
  const T factor = 1 / row.sum, log_sum = vec::log(row.sum);
  if (n <= kShort) {
    T loss = 0;
    for (int64_t i = 0; i < n; ++i) {
      loss += loss_of(labels[i], log_sum, x[i] - row.largest);
      y[i] = y[i] * factor - labels[i];
    }
    return loss;
  }
  Block<T> losses = {};
  const auto subtract = [&](const Block<T>& logits, const Block<T>& label, Block<T> terms)
      __attribute__((always_inline)) {
    for (int i = 0; i < kVectors<T>; ++i) {
      const vec::Vec<T> log_sums = vec::broadcast(log_sum);
      losses.v[i] += loss_of(label.v[i], log_sums, logits.v[i] - row.largest);
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
T class_cross_entropy_row(const T* x, int64_t label, int64_t n, T* y) {
  const T at_label = x[label];
  if (y == nullptr) {
    const RowSums<T> row = sums_of_row(x, n);
    return vec::log(row.sum) - (at_label - row.largest);
  }
  const RowSums<T> row = exponentials(x, n, y);
  scale_row(y, n, 1 / row.sum);
  y[label] -= 1;
  return vec::log(row.sum) - (at_label - row.largest);
}

// As many short rows as a vector has lanes, by columns: lane i of column j is element j of row i.
template <class T>
constexpr int64_t kRows = vec::kLanes<T>;
template <class T>
using Columns = vec::Vec<T>[kShort];

// The columns of rows at x, from where `readable` elements may be read. Rows beyond are anything.
template <class T>
MR_VECTOR_FN void load_columns(const T* x, int64_t n, int64_t readable, Columns<T>& columns) {
  // Lines are not read in the order in which they lie, so the processor does not see what is next.
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t i = kRows<T> * n; i < 2 * kRows<T> * n && i < readable; i += kLine) {
    __builtin_prefetch(x + i);
  }
  for (int64_t j = 0; j < n; j += kRows<T>) {
    vec::Vec<T>* const square = columns + j;
    if ((kRows<T> - 1) * n + j + kRows<T> <= readable) {
#pragma GCC unroll 16
      for (int64_t i = 0; i < kRows<T>; ++i) square[i] = vec::load(x + i * n + j);
    } else {
      for (int64_t i = 0; i < kRows<T>; ++i) {
        const int64_t at = i * n + j;
        T part[kRows<T>] = {};
        for (int64_t k = 0; k < kRows<T> && at + k < readable; ++k) part[k] = x[at + k];
        square[i] = vec::load(part);
      }
    }
    vec::transpose(square);
  }
}

// The reverse, for `rows` rows. What a vector writes beyond its row is written again: by the rows
// after it, whose first columns come later.
template <class T>
MR_VECTOR_FN void store_columns(Columns<T>& columns, int64_t n, int64_t rows, T* y) {
  for (int64_t j = (n - 1) / kRows<T> * kRows<T>; j >= 0; j -= kRows<T>) {
    vec::Vec<T>* const square = columns + j;
    vec::transpose(square);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t at = i * n + j;
      if (at + kRows<T> <= rows * n) {
        vec::store(y + at, square[i]);
      } else {
        for (int64_t k = 0; k < kRows<T> && j + k < n; ++k) y[at + k] = square[i][k];
      }
    }
  }
}

template <class T>
struct ColumnSums {
  vec::Vec<T> largest;
  vec::Vec<T> sum;
};

// exp(columns - largest), with their sum.
template <class T>
MR_VECTOR_FN ColumnSums<T> column_exponentials(const Columns<T>& x, int64_t n, Columns<T>& y) {
  Largest<T> numbers;
  for (int64_t j = 0; j < n; ++j) numbers.see(x[j]);
  ColumnSums<T> sums = {numbers.v, {}};
  if (!numbers.valid()) {
    sums.largest = vec::broadcast(kLowest<T>);
    for (int64_t j = 0; j < n; ++j) sums.largest = vec::max(sums.largest, x[j]);
  }
  for (int64_t j = 0; j < n; ++j) {
    y[j] = exp_of_shifted(x[j] - sums.largest);
    sums.sum += y[j];
  }
  return sums;
}

// Calls columns(i, count) for short rows i, ..., i + count - 1 in groups that are worth it, and
// row(i) for the others.
template <class T, class FromColumns, class Row>
MR_VECTOR_FN void for_each_row(int64_t rows, int64_t n, FromColumns columns, Row row) {
  constexpr int64_t kFewest = kRows<T> / 4;
  int64_t i = 0;
  while (n > 0 && n <= kShort && rows - i > kFewest) {
    const int64_t count = rows - i < kRows<T> ? rows - i : kRows<T>;
    columns(i, count);
    i += count;
  }
  for (; i < rows; ++i) row(i);
}

template <class T>
void softmax(const T* x, int64_t rows, int64_t n, T* y) {
  for_each_row<T>(
      rows, n,
      [&](int64_t i, int64_t count) {
        Columns<T> columns;
        load_columns<T>(x + i * n, n, (rows - i) * n, columns);
        const vec::Vec<T> sum = column_exponentials<T>(columns, n, columns).sum;
        const vec::Vec<T> factor = vec::lit<vec::Vec<T>>(1) / sum;
        for (int64_t j = 0; j < n; ++j) columns[j] *= factor;
        store_columns<T>(columns, n, count, y + i * n);
      },
      [&](int64_t i) { softmax_row(x + i * n, n, y + i * n); });
}

template <class T>
void log_softmax(const T* x, int64_t rows, int64_t n, T* y) {
  for_each_row<T>(
      rows, n,
      [&](int64_t i, int64_t count) {
        Columns<T> columns, terms;
        load_columns<T>(x + i * n, n, (rows - i) * n, columns);
        const ColumnSums<T> sums = column_exponentials<T>(columns, n, terms);
        const vec::Vec<T> log_sum = vec::log(sums.sum);
        for (int64_t j = 0; j < n; ++j) columns[j] = (columns[j] - sums.largest) - log_sum;
        store_columns<T>(columns, n, count, y + i * n);
      },
      [&](int64_t i) { log_softmax_row(x + i * n, n, y + i * n); });
}

template <class T>
void cross_entropy(const T* x, const T* labels, int64_t rows, int64_t n, T* y, T* losses) {
  for_each_row<T>(
      rows, n,
      [&](int64_t i, int64_t count) {
        Columns<T> columns, terms, label;
        load_columns<T>(x + i * n, n, (rows - i) * n, columns);
        load_columns<T>(labels + i * n, n, (rows - i) * n, label);
        const ColumnSums<T> sums = column_exponentials<T>(columns, n, terms);
        const vec::Vec<T> factor = vec::lit<vec::Vec<T>>(1) / sums.sum;
        const vec::Vec<T> log_sum = vec::log(sums.sum);
        vec::Vec<T> loss = {};
        for (int64_t j = 0; j < n; ++j) {
          loss += loss_of(label[j], log_sum, columns[j] - sums.largest);
          terms[j] = terms[j] * factor - label[j];
        }
        store_columns<T>(terms, n, count, y + i * n);
        for (int64_t k = 0; k < count; ++k) losses[i + k] = loss[k];
      },
      [&](int64_t i) { losses[i] = cross_entropy_row(x + i * n, labels + i * n, n, y + i * n); });
}

template <class T>
void class_cross_entropy(const T* x, const int64_t* classes, int64_t rows, int64_t n, T* y,
                         T* losses) {
  for_each_row<T>(
      rows, n,
      [&](int64_t i, int64_t count) {
        Columns<T> columns;
        load_columns<T>(x + i * n, n, (rows - i) * n, columns);
        T at_label[kRows<T>] = {};
        vec::IntOfSize<T> labels[kRows<T>] = {};
        for (int64_t k = 0; k < count; ++k) {
          labels[k] = static_cast<vec::IntOfSize<T>>(classes[i + k]);
          at_label[k] = x[(i + k) * n + classes[i + k]];
        }
        const auto label = vec::load(labels);
        const ColumnSums<T> sums = column_exponentials<T>(columns, n, columns);
        const vec::Vec<T> loss = vec::log(sums.sum) - (vec::load(at_label) - sums.largest);
        for (int64_t k = 0; k < count; ++k) losses[i + k] = loss[k];
        if (y == nullptr) return;
        const vec::Vec<T> factor = vec::lit<vec::Vec<T>>(1) / sums.sum;
        for (int64_t j = 0; j < n; ++j) {
          const vec::Vec<T> share = columns[j] * factor;
          const auto here = label == vec::broadcast(static_cast<vec::IntOfSize<T>>(j));
          columns[j] = here ? share - vec::lit<vec::Vec<T>>(1) : share;
        }
        store_columns<T>(columns, n, count, y + i * n);
      },
      [&](int64_t i) {
        T* const to = y == nullptr ? nullptr : y + i * n;
        losses[i] = class_cross_entropy_row(x + i * n, classes[i], n, to);
      });
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
