#include <type_traits>
#include <utility>

#include "millrace/ops/linalg/gemm_kernels.h"
#include "millrace/ops/transpose_vectors.h"
#include "millrace/ops/vector.h"

namespace millrace {
namespace {

// As many sums as fit into the registers beside what they are made of: of fewer vectors more rows,
// so that additions that wait for one another are always more than the processor begins meanwhile.
// Integers are multiplied rarely: they have fewer tiles, and no strips.
constexpr bool kManyRegisters = vec::kVectorRegisters == 32;
constexpr int kVectors = kManyRegisters ? 4 : 2;
template <class T>
constexpr int rows_of(int vectors) {
  if constexpr (std::is_integral_v<T>) return 6;
  constexpr int kWide[] = {24, 14, 8, 6}, kNarrow[] = {10, 6};
  return kManyRegisters ? kWide[vectors - 1] : kNarrow[vectors - 1];
}
template <class T>
constexpr int kColumns = kVectors * vec::kLanes<T>;

// A loop of a constant number of turns, without a loop.
#define MR_UNROLLED _Pragma("GCC unroll 32")

// What products are made of: elements T, each a number.
template <class T>
struct Numbers {
  using Element = T;
  static MR_VECTOR_FN T everywhere(const T* x) { return *x; }
  template <class A>
  static MR_VECTOR_FN void add_product(vec::Vec<T>& sum, A a, vec::Vec<T> b) {
    sum += a * b;
  }
  static MR_VECTOR_FN void add_product(T& sum, T a, T b) { sum += a * b; }
};

#if defined(__AVX512F__) && defined(__AVX512DQ__)
// Elements that are pairs of bfloat16, in the place of a float: a product is of the first ones,
// plus one of the second ones.
struct Pairs {
  using Element = float;
  using Bits = vec::Vec<uint32_t>;
  static MR_VECTOR_FN Bits everywhere(const float* x) {
    uint32_t bits;
    __builtin_memcpy(&bits, x, sizeof bits);
    return Bits{} + bits;
  }
  template <class A>
  static MR_VECTOR_FN void add_product(vec::Vec<float>& sum, A a, vec::Vec<float> b) {
    // As text: compilers would want all that is inlined here to be for AVX512_BF16.
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  }
  static MR_VECTOR_FN void add_product(float& sum, float a, float b) {
    const auto number = [](uint32_t bits) { return vec::bit_cast<float>(bits); };
    const auto x = vec::bit_cast<uint32_t>(a), y = vec::bit_cast<uint32_t>(b);
    sum += number(x << 16) * number(y << 16) + number(x >> 16 << 16) * number(y >> 16 << 16);
  }
};
#endif

// The sums of a tile live in kRowsDone * kVectorsDone registers while k advances.
template <class P, class T, int kRowsDone, int kVectorsDone, bool kCopies>
void tile_of(int64_t k, const GemmRows<T>& rows, const T* b, int64_t b_step, T* copy, T* c,
             int64_t ldc, bool accumulate) {
  constexpr int kL = vec::kLanes<T>;
  constexpr int kPointers = (kRowsDone + 2) / 3;  // of three rows each: fewer would not do
  vec::Vec<T> sums[kRowsDone][kVectorsDone] = {};
  MR_UNROLLED
  for (int i = 0; i < kRowsDone; ++i) {
    MR_UNROLLED
    for (int j = 0; j < kVectorsDone; ++j) {
      __builtin_prefetch(c + i * ldc + j * kL, 1);
    }
    __builtin_prefetch(c + i * ldc + kVectorsDone * kL - 1, 1);
  }
  const int64_t row_step = rows.row_step, k_step = rows.k_step;
  const T* a[kPointers];
  MR_UNROLLED
  for (int i = 0; i < kPointers; ++i) a[i] = rows.data + 3 * i * row_step;
  for (int64_t left_over = k; left_over > 0; left_over -= rows.run) {
    const int64_t run = left_over < rows.run ? left_over : rows.run;
    for (int64_t p = 0; p < run; ++p) {
      vec::Vec<T> right[kVectorsDone];
      MR_UNROLLED
      for (int j = 0; j < kVectorsDone; ++j) right[j] = vec::load(b + j * kL);
      if constexpr (kCopies) {
        MR_UNROLLED
        for (int j = 0; j < kVectorsDone; ++j) {
          vec::store(copy + j * kL, right[j]);
          // What is beside it comes next.
          __builtin_prefetch(b + (kVectorsDone + j) * kL, 0, 2);
        }
        copy += kVectorsDone * kL;
      }
      MR_UNROLLED
      for (int i = 0; i < kRowsDone; ++i) {
        const auto left = P::everywhere(a[i / 3] + i % 3 * row_step);
        MR_UNROLLED
        for (int j = 0; j < kVectorsDone; ++j) P::add_product(sums[i][j], left, right[j]);
      }
      MR_UNROLLED
      for (int i = 0; i < kPointers; ++i) a[i] += k_step;
      b += b_step;
    }
    MR_UNROLLED
    for (int i = 0; i < kPointers; ++i) a[i] += rows.skip;
  }
  MR_UNROLLED
  for (int i = 0; i < kRowsDone; ++i) {
    T* row = c + i * ldc;
    MR_UNROLLED
    for (int j = 0; j < kVectorsDone; ++j) {
      if (accumulate) sums[i][j] += vec::load(row + j * kL);
      vec::store(row + j * kL, sums[i][j]);
    }
  }
}

template <class T>
using Tile = void (*)(int64_t, const GemmRows<T>&, const T*, int64_t, T*, T*, int64_t, bool);
// For each number of rows, from 1 on, a tile without and one with a copy.
template <class P, int kVectorsDone, size_t... before>
struct TileTable {
  using T = typename P::Element;
  static constexpr Tile<T> kOf[][2] = {
      {&tile_of<P, T, static_cast<int>(before) + 1, kVectorsDone, false>,
       &tile_of<P, T, static_cast<int>(before) + 1, kVectorsDone, true>}...};
};
template <class P, int kVectorsDone, size_t... before>
constexpr TileTable<P, kVectorsDone, before...> tile_table(std::index_sequence<before...>) {
  return {};
}

template <class P, int kVectorsLeft>
MR_VECTOR_FN Tile<typename P::Element> find_tile(int rows, int vectors, bool copies) {
  if constexpr (kVectorsLeft > 1) {
    if (vectors < kVectorsLeft) return find_tile<P, kVectorsLeft - 1>(rows, vectors, copies);
  }
  using Table = decltype(tile_table<P, kVectorsLeft>(
      std::make_index_sequence<static_cast<size_t>(rows_of<typename P::Element>(kVectorsLeft))>()));
  return Table::kOf[rows - 1][copies ? 1 : 0];
}

template <class P, class T = typename P::Element>
void tile(int rows, int columns, int64_t k, GemmRows<T> a, const T* b, int64_t b_step, T* copy,
          T* c, int64_t ldc, bool accumulate) {
  find_tile<P, kVectors>(rows, columns / vec::kLanes<T>, copy != nullptr)(k, a, b, b_step, copy, c,
                                                                          ldc, accumulate);
}

template <class T>
int tile_rows(int columns) {
  return rows_of<T>((columns + vec::kLanes<T> - 1) / vec::kLanes<T>);
}

// Sums of few rows by two to four vectors, which leave room for the vectors of b: with more than
// one, elements of a are read less often than sums are added to.
constexpr int kStripSums = vec::kVectorBytes == 64 ? 28 : kVectors * rows_of<float>(kVectors);
constexpr int kStripRows = kStripSums / 2;
constexpr int strip_vectors(int rows) {
  return rows * kVectors <= kStripSums ? kVectors : kStripSums / rows;
}

template <class T, int kRowsDone, int kVectorsDone>
MR_VECTOR_FN void strip_of(int64_t k, const GemmRows<T>& rows, const T* b, int64_t b_step,
                           const T* ahead, T* c, int64_t ldc, bool accumulate) {
  constexpr int kL = vec::kLanes<T>;
  constexpr int kPointers = (kRowsDone + 2) / 3;
  vec::Vec<T> sums[kRowsDone][kVectorsDone] = {};
  const int64_t row_step = rows.row_step, k_step = rows.k_step;
  const T* a[kPointers];
  MR_UNROLLED
  for (int i = 0; i < kPointers; ++i) a[i] = rows.data + 3 * i * row_step;
  for (int64_t p = 0; p < k; ++p) {
    vec::Vec<T> right[kVectorsDone];
    MR_UNROLLED
    for (int j = 0; j < kVectorsDone; ++j) {
      right[j] = vec::load(b + j * kL);
      __builtin_prefetch(ahead + j * kL, 0, 2);
    }
    MR_UNROLLED
    for (int i = 0; i < kRowsDone; ++i) {
      const T left = a[i / 3][i % 3 * row_step];
      MR_UNROLLED
      for (int j = 0; j < kVectorsDone; ++j) sums[i][j] += left * right[j];
    }
    MR_UNROLLED
    for (int i = 0; i < kPointers; ++i) a[i] += k_step;
    b += b_step;
    ahead += b_step;
  }
  MR_UNROLLED
  for (int i = 0; i < kRowsDone; ++i) {
    T* row = c + i * ldc;
    MR_UNROLLED
    for (int j = 0; j < kVectorsDone; ++j) {
      if (accumulate) sums[i][j] += vec::load(row + j * kL);
      vec::store(row + j * kL, sums[i][j]);
    }
  }
}

// All vectors of a strip, or those there are at the end, one at a time.
template <class T, int kRowsDone>
void strip_of_rows(int columns, int64_t k, const GemmRows<T>& a, const T* b, int64_t b_step,
                   const T* ahead, T* c, int64_t ldc, bool accumulate) {
  constexpr int kL = vec::kLanes<T>;
  constexpr int kWide = strip_vectors(kRowsDone);
  if (columns == kWide * kL) {
    strip_of<T, kRowsDone, kWide>(k, a, b, b_step, ahead, c, ldc, accumulate);
    return;
  }
  for (int j = 0; j < columns; j += kL) {
    strip_of<T, kRowsDone, 1>(k, a, b + j, b_step, ahead + j, c + j, ldc, accumulate);
  }
}

template <class T>
using StripOfRows = void (*)(int, int64_t, const GemmRows<T>&, const T*, int64_t, const T*, T*,
                             int64_t, bool);
template <class T, size_t... before>
struct StripTable {
  static constexpr StripOfRows<T> kOf[] = {&strip_of_rows<T, static_cast<int>(before) + 1>...};
};
template <class T, size_t... before>
constexpr StripTable<T, before...> strip_table(std::index_sequence<before...>) {
  return {};
}

template <class T>
void strip(int rows, int columns, int64_t k, const GemmRows<T>& a, const T* b, int64_t b_step,
           const T* ahead, T* c, int64_t ldc, bool accumulate) {
  using Table = decltype(strip_table<T>(std::make_index_sequence<kStripRows>()));
  Table::kOf[rows - 1](columns, k, a, b, b_step, ahead != nullptr ? ahead : b, c, ldc, accumulate);
}

template <class T>
int strip_lanes(int rows) {
  return strip_vectors(rows) * vec::kLanes<T>;
}

template <class T, int kCount>
struct VecOf {
  typedef T Type __attribute__((vector_size(kCount * sizeof(T))));
};

// A vector of sums: the second half of its elements is added to the first until kLeft are left.
template <class T, int kLeft, int kCount>
MR_VECTOR_FN typename VecOf<T, kLeft>::Type fold(typename VecOf<T, kCount>::Type v) {
  if constexpr (kCount == kLeft) {
    return v;
  } else {
    typename VecOf<T, kCount / 2>::Type halves[2];
    __builtin_memcpy(halves, &v, sizeof v);
    return fold<T, kLeft, kCount / 2>(halves[0] + halves[1]);
  }
}

template <class T>
MR_VECTOR_FN T sum_of(vec::Vec<T> v) {
  const auto two = fold<T, 2, vec::kLanes<T>>(v);
  return two[0] + two[1];
}

// sum_of() each of four.
template <class T>
MR_VECTOR_FN void sums_of(const vec::Vec<T>* v, T* out) {
  constexpr int kL = vec::kLanes<T>;
  if constexpr (kL < 4) {
    for (int j = 0; j < 4; ++j) out[j] = sum_of<T>(v[j]);
  } else {
    const auto a = fold<T, 4, kL>(v[0]), b = fold<T, 4, kL>(v[1]);
    const auto c = fold<T, 4, kL>(v[2]), d = fold<T, 4, kL>(v[3]);
    const auto ab =
        __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const auto cd =
        __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
    const auto all =
        __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    __builtin_memcpy(out, &all, sizeof all);
  }
}

// As many sums of rows by columns as fit, with more columns than rows: few rows are read for every
// group of columns, from further away than these.
constexpr int kDotRows = kManyRegisters ? 4 : 3;
constexpr int kDots = kManyRegisters ? 6 : 4;

// A vector of sums for each pair of a row and a column.
template <class P, class T, int kRowsDone, int kColumnsDone, int kAhead>
void dots_of(int64_t k, const T* a, int64_t a_step, const T* b, int64_t b_step, const T* ahead,
             T* c, int64_t ldc, bool accumulate) {
  constexpr int kL = vec::kLanes<T>;
  vec::Vec<T> sums[kRowsDone][kColumnsDone] = {};
  int64_t p = 0;
  for (; p + kL <= k; p += kL) {
    vec::Vec<T> right[kColumnsDone];
    MR_UNROLLED
    for (int j = 0; j < kColumnsDone; ++j) right[j] = vec::load(b + j * b_step + p);
    MR_UNROLLED
    for (int j = 0; j < kAhead; ++j) __builtin_prefetch(ahead + j * b_step + p, 0, 2);
    MR_UNROLLED
    for (int i = 0; i < kRowsDone; ++i) {
      const vec::Vec<T> left = vec::load(a + i * a_step + p);
      MR_UNROLLED
      for (int j = 0; j < kColumnsDone; ++j) P::add_product(sums[i][j], left, right[j]);
    }
  }
  MR_UNROLLED
  for (int i = 0; i < kRowsDone; ++i) {
    T out[kColumnsDone];
    constexpr int kFours = kColumnsDone / 4 * 4;
    if constexpr (kFours > 0) sums_of<T>(sums[i], out);
    for (int j = kFours; j < kColumnsDone; ++j) out[j] = sum_of<T>(sums[i][j]);
    for (int j = 0; j < kColumnsDone; ++j) {
      for (int64_t q = p; q < k; ++q) {
        P::add_product(out[j], a[i * a_step + q], b[j * b_step + q]);
      }
    }
    for (int j = 0; j < kColumnsDone; ++j) {
      T* const to = c + i * ldc + j;
      *to = accumulate ? *to + out[j] : out[j];
    }
  }
}

template <class P, int kRowsLeft, class T>
MR_VECTOR_FN void dots_at_most(int rows, int columns, int64_t k, const T* a, int64_t a_step,
                               const T* b, int64_t b_step, const T* ahead, int ahead_columns, T* c,
                               int64_t ldc, bool accumulate) {
  if constexpr (kRowsLeft > 1) {
    if (rows < kRowsLeft) {
      dots_at_most<P, kRowsLeft - 1>(rows, columns, k, a, a_step, b, b_step, ahead, ahead_columns,
                                     c, ldc, accumulate);
      return;
    }
  }
  if (columns == kDots) {
    switch (ahead_columns) {
      case 0:
        dots_of<P, T, kRowsLeft, kDots, 0>(k, a, a_step, b, b_step, nullptr, c, ldc, accumulate);
        break;
      case 1:
        dots_of<P, T, kRowsLeft, kDots, 1>(k, a, a_step, b, b_step, ahead, c, ldc, accumulate);
        break;
      case 2:
        dots_of<P, T, kRowsLeft, kDots, 2>(k, a, a_step, b, b_step, ahead, c, ldc, accumulate);
        break;
      default:
        dots_of<P, T, kRowsLeft, kDots, kDots / 2>(k, a, a_step, b, b_step, ahead, c, ldc,
                                                   accumulate);
        break;
    }
    return;
  }
  for (int j = 0; j < columns; ++j) {
    dots_of<P, T, kRowsLeft, 1, 0>(k, a, a_step, b + j * b_step, b_step, nullptr, c + j, ldc,
                                   accumulate);
  }
}

template <class P, class T = typename P::Element>
void dots(int rows, int columns, int64_t k, const T* a, int64_t a_step, const T* b, int64_t b_step,
          const T* ahead, int ahead_columns, T* c, int64_t ldc, bool accumulate) {
  dots_at_most<P, kDotRows>(rows, columns, k, a, a_step, b, b_step, ahead, ahead_columns, c, ldc,
                            accumulate);
}

// Four rows of b at a time, so that c is read and written a quarter as often.
template <class T>
void row(int64_t n, int64_t k, const T* a, const T* b, int64_t b_step, T* c) {
  for (int64_t j = 0; j < n; ++j) c[j] = T{};
  int64_t p = 0;
  for (; p + 4 <= k; p += 4) {
    const T a0 = a[p], a1 = a[p + 1], a2 = a[p + 2], a3 = a[p + 3];
    const T *b0 = b + p * b_step, *b1 = b0 + b_step, *b2 = b1 + b_step, *b3 = b2 + b_step;
    int64_t j = 0;
    for (; j + vec::kLanes<T> <= n; j += vec::kLanes<T>) {
      vec::Vec<T> sum = vec::load(c + j);
      sum += a0 * vec::load(b0 + j);
      sum += a1 * vec::load(b1 + j);
      sum += a2 * vec::load(b2 + j);
      sum += a3 * vec::load(b3 + j);
      vec::store(c + j, sum);
    }
    for (; j < n; ++j) c[j] = c[j] + a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j];
  }
  for (; p < k; ++p) {
    const T a0 = a[p];
    const T* b0 = b + p * b_step;
    for (int64_t j = 0; j < n; ++j) c[j] += a0 * b0[j];
  }
}

// Of as many rows as a vector V has elements, the elements from p on as far as they make squares:
// where they end.
template <class V, class T>
MR_VECTOR_FN int64_t interleave_squares(const T* const* rows, int width, int64_t p, int64_t length,
                                        T* out) {
  constexpr int kSide = sizeof(V) / sizeof(T);
  for (; p + kSide <= length; p += kSide) {
    V square[kSide];
    MR_UNROLLED
    for (int i = 0; i < kSide; ++i) __builtin_memcpy(&square[i], rows[i] + p, sizeof(V));
    vec::transpose(square);
    MR_UNROLLED
    for (int i = 0; i < kSide; ++i) {
      __builtin_memcpy(out + (p + i) * width, &square[i], sizeof(V));
    }
  }
  return p;
}

// By squares of whole vectors, or of four elements where there are fewer lines or elements.
template <class T>
void interleave(const T* const* rows, int count, int width, int64_t length, T* out) {
  constexpr int kSide = vec::kLanes<T>, kSmall = kSide < 4 ? kSide : 4;
  int i = 0;
  while (i + kSmall <= count) {
    const bool whole = kSide > kSmall && i + kSide <= count && length >= kSide;
    const int end = whole ? i + kSide : i + kSmall;
    const int64_t done =
        whole ? interleave_squares<vec::Vec<T>>(rows + i, width, 0, length, out + i) : 0;
    for (; i < end; i += kSmall) {
      int64_t p = interleave_squares<typename VecOf<T, kSmall>::Type>(rows + i, width, done, length,
                                                                      out + i);
      for (; p < length; ++p) {
        for (int r = 0; r < kSmall; ++r) out[p * width + i + r] = rows[i + r][p];
      }
    }
  }
  for (; i < count; ++i) {
    for (int64_t p = 0; p < length; ++p) out[p * width + i] = rows[i][p];
  }
  if (i < width) {
    for (int64_t p = 0; p < length; ++p) {
      for (int z = i; z < width; ++z) out[p * width + z] = T{};
    }
  }
}

template <class T, int count>
MR_VECTOR_FN void copy_whole_lines(const T* const* lines, int64_t offset, int width, int64_t length,
                                   T* out) {
  for (int64_t p = 0; p < length; ++p) {
    __builtin_memcpy(out + p * width, lines[p] + offset, count * sizeof(T));
  }
}

template <class T>
void copy_lines(const T* const* lines, int64_t offset, int count, int width, int64_t length,
                T* out) {
  constexpr int kL = vec::kLanes<T>;
  if (count == kColumns<T>) {
    copy_whole_lines<T, kColumns<T>>(lines, offset, width, length, out);
  } else if (count == 3 * kL) {
    copy_whole_lines<T, 3 * kL>(lines, offset, width, length, out);
  } else if (count == 2 * kL) {
    copy_whole_lines<T, 2 * kL>(lines, offset, width, length, out);
  } else if (count == kL) {
    copy_whole_lines<T, kL>(lines, offset, width, length, out);
  } else if (count == 2 * rows_of<T>(kVectors)) {
    copy_whole_lines<T, 2 * rows_of<T>(kVectors)>(lines, offset, width, length, out);
  } else {
    for (int64_t p = 0; p < length; ++p) {
      const T* from = lines[p] + offset;
      T* to = out + p * width;
      int i = 0;
      for (; i + 4 <= count; i += 4) __builtin_memcpy(to + i, from + i, 4 * sizeof(T));
      for (; i < count; ++i) to[i] = from[i];
    }
  }
}

template <class T, bool kStrips = true>
constexpr GemmKernels<T> kKernels = {.mr = rows_of<T>(kVectors),
                                     .nr = kColumns<T>,
                                     .lanes = vec::kLanes<T>,
                                     .tile_rows = &tile_rows<T>,
                                     .tile = &tile<Numbers<T>>,
                                     .strip_rows = kStrips ? kStripRows : 0,
                                     .strip = kStrips ? &strip<T> : nullptr,
                                     .strip_lanes = kStrips ? &strip_lanes<T> : nullptr,
                                     .dot_rows = kDotRows,
                                     .dot_columns = kDots,
                                     .dots = &dots<Numbers<T>>,
                                     .row = &row<T>,
                                     .interleave = &interleave<T>,
                                     .copy_lines = &copy_lines<T>};

#if defined(__AVX512F__) && defined(__AVX512DQ__)
constexpr PairKernels kPairKernels = {true,
                                      {.mr = rows_of<float>(kVectors),
                                       .nr = kColumns<float>,
                                       .lanes = vec::kLanes<float>,
                                       .tile_rows = &tile_rows<float>,
                                       .tile = &tile<Pairs>,
                                       .strip_rows = 0,
                                       .strip = nullptr,
                                       .strip_lanes = nullptr,
                                       .dot_rows = kDotRows,
                                       .dot_columns = kDots,
                                       .dots = &dots<Pairs>,
                                       .row = nullptr,
                                       .interleave = &interleave<float>,
                                       .copy_lines = &copy_lines<float>}};
#else
constexpr PairKernels kPairKernels = {};
#endif

}  // namespace

template <>
const PairKernels& isa_table<PairKernels, Isa::MR_ISA>() {
  return kPairKernels;
}
template <>
const GemmKernels<float>& isa_table<GemmKernels<float>, Isa::MR_ISA>() {
  return kKernels<float>;
}
template <>
const GemmKernels<double>& isa_table<GemmKernels<double>, Isa::MR_ISA>() {
  return kKernels<double>;
}
template <>
const GemmKernels<uint32_t>& isa_table<GemmKernels<uint32_t>, Isa::MR_ISA>() {
  return kKernels<uint32_t, false>;
}
template <>
const GemmKernels<uint64_t>& isa_table<GemmKernels<uint64_t>, Isa::MR_ISA>() {
  return kKernels<uint64_t, false>;
}

}  // namespace millrace
