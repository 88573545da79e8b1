#include "millrace/ops/linalg/gemm_kernels.h"
#include "millrace/ops/vector.h"

namespace millrace {
namespace {

// As many rows as there are registers for the sums.
constexpr int kRows = vec::kVectorBytes == 64 ? 12 : vec::kVectorBytes == 32 ? 6 : 4;
template <class T>
constexpr int kColumns = 2 * vec::kLanes<T>;

// The sums of a tile live in 2 * kRowsDone registers while k advances.
template <class T, int kRowsDone>
void tile_of(int64_t k, const T* a, const T* b, int64_t b_step, T* c, int64_t ldc,
             bool accumulate) {
  constexpr int kL = vec::kLanes<T>;
  vec::Vec<T> sums[kRowsDone][2] = {};
  for (int64_t p = 0; p < k; ++p) {
    const vec::Vec<T> b0 = vec::load(b), b1 = vec::load(b + kL);
#pragma GCC unroll 16
    for (int i = 0; i < kRowsDone; ++i) {
      sums[i][0] += a[i] * b0;
      sums[i][1] += a[i] * b1;
    }
    a += kRows;
    b += b_step;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRowsDone; ++i) {
    T* row = c + i * ldc;
    if (accumulate) {
      sums[i][0] += vec::load(row);
      sums[i][1] += vec::load(row + kL);
    }
    vec::store(row, sums[i][0]);
    vec::store(row + kL, sums[i][1]);
  }
}

template <class T, int kRowsLeft>
void tile_rows(int rows, int64_t k, const T* a, const T* b, int64_t b_step, T* c, int64_t ldc,
               bool accumulate) {
  if constexpr (kRowsLeft > 1) {
    if (rows < kRowsLeft) {
      tile_rows<T, kRowsLeft - 1>(rows, k, a, b, b_step, c, ldc, accumulate);
      return;
    }
  }
  tile_of<T, kRowsLeft>(k, a, b, b_step, c, ldc, accumulate);
}

template <class T>
void tile(int rows, int64_t k, const T* a, const T* b, int64_t b_step, T* c, int64_t ldc,
          bool accumulate) {
  tile_rows<T, kRows>(rows, k, a, b, b_step, c, ldc, accumulate);
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

template <class T>
struct FourOf {
  typedef T Type __attribute__((vector_size(4 * sizeof(T))));
};

template <class T>
void interleave(const T* const* rows, int count, int width, int64_t length, T* out) {
  using Four = typename FourOf<T>::Type;
  int i = 0;
  for (; i + 4 <= count; i += 4) {
    const T *r0 = rows[i], *r1 = rows[i + 1], *r2 = rows[i + 2], *r3 = rows[i + 3];
    T* o = out + i;
    int64_t p = 0;
    for (; p + 4 <= length; p += 4) {
      Four x0, x1, x2, x3;
      __builtin_memcpy(&x0, r0 + p, sizeof x0);
      __builtin_memcpy(&x1, r1 + p, sizeof x1);
      __builtin_memcpy(&x2, r2 + p, sizeof x2);
      __builtin_memcpy(&x3, r3 + p, sizeof x3);
      const Four low01 = __builtin_shufflevector(x0, x1, 0, 4, 1, 5);
      const Four low23 = __builtin_shufflevector(x2, x3, 0, 4, 1, 5);
      const Four high01 = __builtin_shufflevector(x0, x1, 2, 6, 3, 7);
      const Four high23 = __builtin_shufflevector(x2, x3, 2, 6, 3, 7);
      x0 = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
      x1 = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
      x2 = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
      x3 = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
      __builtin_memcpy(o, &x0, sizeof x0);
      __builtin_memcpy(o + width, &x1, sizeof x1);
      __builtin_memcpy(o + 2 * width, &x2, sizeof x2);
      __builtin_memcpy(o + 3 * width, &x3, sizeof x3);
      o += 4 * width;
    }
    for (; p < length; ++p, o += width) {
      o[0] = r0[p];
      o[1] = r1[p];
      o[2] = r2[p];
      o[3] = r3[p];
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
  if (count == kColumns<T>) {
    copy_whole_lines<T, kColumns<T>>(lines, offset, width, length, out);
  } else if (count == kRows) {
    copy_whole_lines<T, kRows>(lines, offset, width, length, out);
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

// One tile: a second one would read the lines again, which by then have often left the cache.
constexpr int kPlainRows = kRows;

template <class T>
constexpr GemmKernels<T> kKernels = {kRows,   kColumns<T>,    kPlainRows,    &tile<T>,
                                     &row<T>, &interleave<T>, &copy_lines<T>};

}  // namespace

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
  return kKernels<uint32_t>;
}
template <>
const GemmKernels<uint64_t>& isa_table<GemmKernels<uint64_t>, Isa::MR_ISA>() {
  return kKernels<uint64_t>;
}

}  // namespace millrace
