#include "millrace/ops/array/transpose_blocks.h"
#include "millrace/ops/stream_vectors.h"
#include "millrace/ops/transpose_vectors.h"

namespace millrace {
namespace {

constexpr int64_t kLineBytes = 64;

// The vector whose square is transposed: of small elements a narrow one, or the square would not
// fit the registers.
template <class T>
struct SquareVector {
  typedef T Type __attribute__((vector_size(sizeof(T) < 4 ? 16 : vec::kVectorBytes)));
};
template <class T>
using Row = typename SquareVector<T>::Type;
template <class T>
constexpr int64_t kSquare = sizeof(Row<T>) / sizeof(T);
template <class T>
constexpr int64_t kLine = kLineBytes / sizeof(T);

template <class T, bool around_cache>
MR_VECTOR_FN void transpose_square(const T* from, int64_t from_stride, T* to, int64_t to_stride) {
  Row<T> rows[kSquare<T>];
#pragma GCC unroll 16
  for (int64_t i = 0; i < kSquare<T>; ++i) {
    __builtin_memcpy(&rows[i], from + i * from_stride, sizeof rows[i]);
  }
  vec::transpose(rows);
#pragma GCC unroll 16
  for (int64_t i = 0; i < kSquare<T>; ++i) {
    if constexpr (around_cache) {
      stream_vector(to + i * to_stride, rows[i]);
    } else {
      __builtin_memcpy(to + i * to_stride, &rows[i], sizeof rows[i]);
    }
  }
}

// A matrix by its parts.
template <class T>
struct Matrix {
  const T* from;
  int64_t from_stride;
  T* to;
  int64_t to_stride;

  MR_VECTOR_FN void square(int64_t i, int64_t j) const {
    transpose_square<T, false>(from + i * from_stride + j, from_stride, to + j * to_stride + i,
                               to_stride);
  }
  MR_VECTOR_FN void element(int64_t i, int64_t j) const {
    to[j * to_stride + i] = from[i * from_stride + j];
  }
};

template <class T>
void transpose_elements(const Matrix<T>& m, int64_t rows, int64_t columns) {
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t i = 0; i < rows; ++i) m.element(i, j);
  }
}

// Where the number of rows or columns is no multiple of the square's, the last squares overlap
// those before.
template <class T>
void transpose_squares(const Matrix<T>& m, int64_t rows, int64_t columns) {
  constexpr int64_t kStep = kSquare<T>;
  for (int64_t j = 0; j < columns; j += kStep) {
    const int64_t column = j + kStep <= columns ? j : columns - kStep;
    for (int64_t i = 0; i < rows; i += kStep) {
      m.square(i + kStep <= rows ? i : rows - kStep, column);
    }
  }
}

// Lines of the result are written whole, `kColumns` of them in turn.
template <class T>
void transpose_lines(const Matrix<T>& m, int64_t rows, int64_t columns) {
  constexpr int64_t kStep = kSquare<T>, kColumns = kStep < 32 ? 32 : kStep;
  for (int64_t first = 0; first < columns; first += kColumns) {
    const int64_t last = first + kColumns < columns ? first + kColumns : columns;
    for (int64_t line = 0; line < rows; line += kLine<T>) {
      for (int64_t j = first; j < last; j += kStep) {
        for (int64_t i = line; i < line + kLine<T>; i += kStep) {
          transpose_square<T, true>(m.from + i * m.from_stride + j, m.from_stride,
                                    m.to + j * m.to_stride + i, m.to_stride);
        }
      }
    }
  }
#if defined(__SSE2__)
  _mm_sfence();  // before whoever waits for this thread reads
#endif
}

template <class T>
void transpose_block(const TransposeBlock& block, bool around_cache) {
  const Matrix<T> m = {static_cast<const T*>(block.from), block.from_stride,
                       static_cast<T*>(block.to), block.to_stride};
  const int64_t rows = block.rows, columns = block.columns;
  if (rows < kSquare<T> || columns < kSquare<T>) return transpose_elements(m, rows, columns);
  const bool lines = rows % kLine<T> == 0 && columns % kSquare<T> == 0 &&
                     m.to_stride % kLine<T> == 0 &&
                     reinterpret_cast<uintptr_t>(block.to) % kLineBytes == 0;
  if (around_cache && lines && sizeof(T) > 1) return transpose_lines(m, rows, columns);
  transpose_squares(m, rows, columns);
}

constexpr TransposeBlocks kTransposeBlocks = {{transpose_block<uint8_t>, transpose_block<uint16_t>,
                                               transpose_block<uint32_t>,
                                               transpose_block<uint64_t>}};

}  // namespace

template <>
const TransposeBlocks& isa_table<TransposeBlocks, Isa::MR_ISA>() {
  return kTransposeBlocks;
}

}  // namespace millrace
