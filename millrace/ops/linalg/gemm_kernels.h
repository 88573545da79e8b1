#pragma once

#include <cstdint>

#include "millrace/ops/isa_table.h"

namespace millrace {

// No panel has more lines, and no tile more rows or columns.
inline constexpr int kMaxPanel = 64;

// Some rows of a left matrix in memory: element p of row i is data[i * row_step + p * k_step].
template <class T>
struct GemmRows {
  const T* data;
  int64_t row_step;
  int64_t k_step;
  // After each `run` of elements p the next ones lie `skip` further on.
  int64_t run = INT64_MAX;
  int64_t skip = 0;
};

// What the GEMM driver and the packing code need of one instruction set, for elements T: float,
// double, uint32_t or uint64_t (signed integers multiply as unsigned ones, so that overflow wraps).
//
// Operands that are not read where they lie are packed into panels: a panel of width w and depth d
// holds element p of line i (a row of the left matrix, a column of the right one) at [p * w + i].
template <class T>
struct GemmKernels {
  int mr;     // rows of a tile of nr columns at most
  int nr;     // columns of a tile at most
  int lanes;  // of a vector
  // Rows of a tile of so many columns at most, 1 to nr: the fewer columns the more, up to 32.
  int (*tile_rows)(int columns);

  // c[i * ldc + j] = sum over p of a(i, p) * b[p * b_step + j], for i < rows <=
  // tile_rows(columns) and j < columns, a multiple of `lanes` and at most nr; added to what is
  // there when `accumulate`. The order of the sum depends on nothing but k. Where `copy` is set,
  // copy[p * columns + j] = b[p * b_step + j] too.
  void (*tile)(int rows, int columns, int64_t k, GemmRows<T> a, const T* b, int64_t b_step, T* copy,
               T* c, int64_t ldc, bool accumulate);

  // The same of a few rows and of at most strip_lanes(rows) columns, as many as there are registers
  // for sums: b is read once, where it lies, and ahead[p * b_step] is fetched meanwhile, unless
  // null. For 0 < rows <= strip_rows, which is 0 where there is no such kernel.
  int strip_rows;
  void (*strip)(int rows, int columns, int64_t k, const GemmRows<T>& a, const T* b, int64_t b_step,
                const T* ahead, T* c, int64_t ldc, bool accumulate);
  int (*strip_lanes)(int rows);

  // c[i * ldc + j] = sum over p of a[i * a_step + p] * b[j * b_step + p], for i < rows <=
  // dot_rows and j < columns <= dot_columns; added to what is there when `accumulate`. The order of
  // the sum depends on nothing but k. Elements [0, k) of the `ahead_columns` lines at `ahead` are
  // fetched meanwhile.
  int dot_rows;
  int dot_columns;
  void (*dots)(int rows, int columns, int64_t k, const T* a, int64_t a_step, const T* b,
               int64_t b_step, const T* ahead, int ahead_columns, T* c, int64_t ldc,
               bool accumulate);

  // c[j] = sum over p of a[p] * b[p * b_step + j], for j < n.
  void (*row)(int64_t n, int64_t k, const T* a, const T* b, int64_t b_step, T* c);

  // out[p * width + i] = rows[i][p] for p < length and i < count, zeros for count <= i < width.
  void (*interleave)(const T* const* rows, int count, int width, int64_t length, T* out);

  // out[p * width + i] = lines[p][offset + i] for p < length and i < count; others are left.
  void (*copy_lines)(const T* const* lines, int64_t offset, int count, int width, int64_t length,
                     T* out);
};

// Kernels whose elements of a and b are pairs of bfloat16 that follow each other in k, the first in
// the lower half of a float's bits: their products are summed in float. Only tile and dots are
// there (and what moves elements). For processors with AVX512_BF16 (base/bfloat16_products.h)
// alone.
struct PairKernels {
  bool present;  // in this instruction set
  GemmKernels<float> kernels;
};

}  // namespace millrace
