#pragma once

#include <cstdint>

#include "millrace/ops/isa_table.h"

namespace millrace {

// What the GEMM driver and the packing code need of one instruction set, for elements T: float,
// double, uint32_t or uint64_t (signed integers multiply as unsigned ones, so that overflow wraps).
//
// Operands are packed into panels: a panel of width w and depth d holds element p of line i (a row
// of the left matrix, a column of the right one) at [p * w + i].
template <class T>
struct GemmKernels {
  int mr;  // width of a panel of the left matrix
  int nr;  // width of a panel of the right matrix
  // With so many rows or fewer the right matrix is better read where it lies than packed.
  int plain_rows;

  // c[i * ldc + j] = sum over p of a[p * mr + i] * b[p * b_step + j], for i < rows <= mr and j <
  // nr; added to what is there when `accumulate`. The order of the sum depends on nothing but k.
  void (*tile)(int rows, int64_t k, const T* a, const T* b, int64_t b_step, T* c, int64_t ldc,
               bool accumulate);

  // c[j] = sum over p of a[p] * b[p * b_step + j], for j < n.
  void (*row)(int64_t n, int64_t k, const T* a, const T* b, int64_t b_step, T* c);

  // out[p * width + i] = rows[i][p] for p < length and i < count, zeros for count <= i < width.
  void (*interleave)(const T* const* rows, int count, int width, int64_t length, T* out);

  // out[p * width + i] = lines[p][offset + i] for p < length and i < count; others are left.
  void (*copy_lines)(const T* const* lines, int64_t offset, int count, int width, int64_t length,
                     T* out);
};

}  // namespace millrace
