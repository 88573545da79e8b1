#include "millrace/ops/linalg/gemm.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>

#include "millrace/ops/accumulate.h"
#include "millrace/ops/linalg/scratch.h"
#include "millrace/tensor/complex.h"
#include "millrace/tensor/half.h"

namespace millrace {
namespace {

// Blocks of about these sizes: a panel of the right matrix stays in the first-level cache while a
// block of the left one (kRowsPerBlock x kDepth) is read from the second, and kDepth x
// kColumnsPerBlock elements of the right matrix are packed at a time.
constexpr int64_t kDepth = 320;
constexpr int64_t kRowsPerBlock = 144;
constexpr int64_t kColumnsPerBlock = 2048;
// The left matrix is packed once for all threads up to this many rows, else per task.
constexpr int64_t kSharedRows = 4 * kRowsPerBlock;
// Enough pieces that threads finish together.
constexpr int64_t kTasks = 24;
constexpr int kMaxPanel = 64;
// Products of at most this many multiplications are not worth packing.
constexpr int64_t kSmall = 8 * 8 * 8;
constexpr double kFlopsPerNs = 50;
// Where C has at most kSplitElements, so that a block of k is little work, and k has kSplitBlocks
// blocks or more, k is cut into up to kSplitParts parts.
constexpr int64_t kSplitElements = int64_t{1} << 18;
constexpr int64_t kSplitBlocks = 8;
constexpr int64_t kSplitParts = 16;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

template <class T>
void fill_rows(const GemmProblem<T>& problem) {
  int64_t offsets[512];
  for (int64_t row = 0; row < problem.m; row += 512) {
    const int64_t count = std::min<int64_t>(512, problem.m - row);
    if (problem.row_offsets != nullptr) {
      problem.row_offsets(problem.row_context, row, count, offsets);
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t offset = problem.row_offsets != nullptr ? offsets[i] : (row + i) * problem.ldc;
      std::fill_n(problem.c + offset, problem.n, T{});
    }
  }
}

// One pass over a block of k: all of C, columns [first_column, first_column + columns).
template <class T>
struct Pass {
  const GemmProblem<T>& problem;
  const GemmKernels<T>& kernels;
  int64_t k, depth;
  int64_t first_column, columns;
  bool accumulate;
  const T* packed_b;  // panels of the columns
  const T* plain_b;   // null, or element (k, first_column) of an unpacked right matrix
  int64_t plain_step;

  // Rows [row, row + rows) (rows <= 512), packed at `a`, times columns [from, to) of the pass.
  void multiply(int64_t row, int64_t rows, const T* a, int64_t from, int64_t to) const {
    const int mr = kernels.mr, nr = kernels.nr;
    int64_t offsets[512];
    if (problem.row_offsets != nullptr) {
      problem.row_offsets(problem.row_context, row, rows, offsets);
    }
    for (int64_t j = from; j < to; j += nr) {
      const int64_t wide = std::min<int64_t>(nr, columns - j);
      const bool plain = plain_b != nullptr && wide == nr;
      const T* b = plain ? plain_b + j : packed_b + j * depth;
      const int64_t b_step = plain ? plain_step : nr;
      for (int64_t i = 0; i < rows; i += mr) {
        const int tall = static_cast<int>(std::min<int64_t>(mr, rows - i));
        const T* panel = a + i * depth;
        if (problem.row_offsets == nullptr && wide == nr) {
          T* c = problem.c + (row + i) * problem.ldc + first_column + j;
          kernels.tile(tall, depth, panel, b, b_step, c, problem.ldc, accumulate);
          continue;
        }
        T tile[kMaxPanel * kMaxPanel];
        kernels.tile(tall, depth, panel, b, b_step, tile, nr, false);
        for (int r = 0; r < tall; ++r) {
          const int64_t offset =
              problem.row_offsets != nullptr ? offsets[i + r] : (row + i + r) * problem.ldc;
          T* c = problem.c + offset + first_column + j;
          const T* from_tile = tile + r * nr;
          if (accumulate) {
            for (int64_t q = 0; q < wide; ++q) c[q] += from_tile[q];
          } else {
            std::copy_n(from_tile, wide, c);
          }
        }
      }
    }
  }

  double nanoseconds(int64_t rows, int64_t wide) const {
    return 2.0 * static_cast<double>(rows) * static_cast<double>(wide) *
           static_cast<double>(depth) / kFlopsPerNs;
  }

  // All rows, packed beforehand at `a`: the tasks are a grid over C.
  void run_shared(const T* a, ParallelFor parallel_for) const {
    const int64_t row_tiles = ceil_div(problem.m, kernels.mr);
    const int64_t column_tiles = ceil_div(columns, kernels.nr);
    const int64_t row_blocks = ceil_div(problem.m, kRowsPerBlock);
    const int64_t rows = ceil_div(row_tiles, row_blocks) * kernels.mr;
    const int64_t column_blocks = std::min(column_tiles, ceil_div(kTasks, row_blocks));
    const int64_t wide = ceil_div(column_tiles, column_blocks) * kernels.nr;
    const int64_t grid_rows = ceil_div(problem.m, rows), grid_columns = ceil_div(columns, wide);
    parallel_for(grid_rows * grid_columns, nanoseconds(rows, wide),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t t = begin; t < end; ++t) {
                     const int64_t row = t / grid_columns * rows, column = t % grid_columns * wide;
                     multiply(row, std::min(rows, problem.m - row), a + row * depth, column,
                              std::min(columns, column + wide));
                   }
                 });
  }

  // All rows, packed beforehand at `a`, one block of them: each task packs the panels of columns it
  // multiplies, one at a time, so that a panel is in the first-level cache when it is used. False
  // when there was no memory.
  bool run_panels(const T* a, ParallelFor parallel_for) const {
    const int nr = kernels.nr;
    std::atomic<bool> short_of_memory{false};
    parallel_for(ceil_div(columns, nr), nanoseconds(problem.m, nr),
                 [&](int64_t begin, int64_t end) {
                   Scratch<T> packed(nr * depth);
                   if (packed.data() == nullptr) {
                     short_of_memory = true;
                     return;
                   }
                   for (int64_t t = begin; t < end; ++t) {
                     const int64_t column = t * nr;
                     const int64_t wide = std::min<int64_t>(nr, columns - column);
                     problem.b.pack(first_column + column, wide, k, depth, nr, packed.data());
                     const Pass<T> panel{
                         problem,    kernels,       k,       depth, first_column + column, wide,
                         accumulate, packed.data(), nullptr, 0};
                     panel.multiply(0, problem.m, a, 0, wide);
                   }
                 });
    return !short_of_memory;
  }

  // Each task packs the rows it multiplies. False when there was no memory.
  bool run_private(ParallelFor parallel_for) const {
    const int64_t rows = std::min(round_up(kRowsPerBlock, kernels.mr),
                                  round_up(ceil_div(problem.m, kTasks), kernels.mr));
    std::atomic<bool> short_of_memory{false};
    parallel_for(ceil_div(problem.m, rows), nanoseconds(rows, columns),
                 [&](int64_t begin, int64_t end) {
                   Scratch<T> packed(rows * depth);
                   if (packed.data() == nullptr) {
                     short_of_memory = true;
                     return;
                   }
                   for (int64_t t = begin; t < end; ++t) {
                     const int64_t row = t * rows;
                     const int64_t count = std::min(rows, problem.m - row);
                     problem.a.pack(row, count, k, depth, kernels.mr, packed.data());
                     multiply(row, count, packed.data(), 0, columns);
                   }
                 });
    return !short_of_memory;
  }
};

// One row times a matrix that is read where it lies.
template <class T>
Status multiply_row(const GemmProblem<T>& problem, const GemmKernels<T>& kernels, const T* b,
                    int64_t b_step, ParallelFor parallel_for) {
  constexpr int64_t kColumns = 512;
  Scratch<T> a(problem.k);
  MR_TRY(a.status());
  problem.a.pack(0, 1, 0, problem.k, 1, a.data());
  parallel_for(ceil_div(problem.n, kColumns), static_cast<double>(kColumns * problem.k) * 0.1,
               [&](int64_t begin, int64_t end) {
                 for (int64_t t = begin; t < end; ++t) {
                   const int64_t column = t * kColumns;
                   kernels.row(std::min(kColumns, problem.n - column), problem.k, a.data(),
                               b + column, b_step, problem.c + column);
                 }
               });
  return ok_status();
}

// Packs lines [line, line + count) in parallel.
template <class T>
void pack_panels(const GemmSource<T>& source, int64_t line, int64_t count, int64_t k, int64_t depth,
                 int width, T* out, ParallelFor parallel_for) {
  parallel_for(ceil_div(count, width), static_cast<double>(width * depth) * 0.3,
               [&](int64_t begin, int64_t end) {
                 const int64_t from = begin * width;
                 source.pack(line + from, std::min(end * width, count) - from, k, depth, width,
                             out + from * depth);
               });
}

// Panels of `count` lines that lie side by side, from one element of a line to the next `step`.
template <class T>
void copy_panels(const T* data, int64_t step, int64_t count, int64_t depth, int width, T* out) {
  constexpr int64_t kLines = 128;
  const auto copy_lines = isa_table<GemmKernels<T>>().copy_lines;
  const int64_t whole = count / width * width;
  const int rest = static_cast<int>(count - whole);
  if (rest > 0) std::fill_n(out + whole * depth, width * depth, T{});
  for (int64_t first = 0; first < depth; first += kLines) {
    const int64_t length = std::min(kLines, depth - first);
    const T* lines[kLines];
    for (int64_t p = 0; p < length; ++p) lines[p] = data + (first + p) * step;
    T* to = out + first * width;
    for (int64_t i = 0; i < whole; i += width) {
      copy_lines(lines, i, width, width, length, to + i * depth);
    }
    if (rest > 0) copy_lines(lines, whole, rest, width, length, to + whole * depth);
  }
}

}  // namespace

template <class T, class S>
void StridedSource<T, S>::pack(int64_t line, int64_t count, int64_t k, int64_t depth, int width,
                               T* out) const {
  const S* data = data_ + line * line_step_ + k * k_step_;
  if constexpr (std::is_same_v<S, T>) {
    if (line_step_ == 1) {
      copy_panels(data, k_step_, count, depth, width, out);
      return;
    }
  }
  for (; count > 0; count -= width, data += width * line_step_, out += width * depth) {
    const int here = static_cast<int>(std::min<int64_t>(count, width));
    if (line_step_ == 1 || k_step_ != 1) {
      for (int64_t p = 0; p < depth; ++p) {
        const S* from = data + p * k_step_;
        T* to = out + p * width;
        for (int i = 0; i < here; ++i) to[i] = static_cast<T>(from[i * line_step_]);
        for (int i = here; i < width; ++i) to[i] = T{};
      }
      continue;
    }
    const T* rows[kMaxPanel];
    if constexpr (std::is_same_v<S, T>) {
      for (int i = 0; i < here; ++i) rows[i] = data + i * line_step_;
      isa_table<GemmKernels<T>>().interleave(rows, here, width, depth, out);
    } else {
      constexpr int64_t kChunk = 64;
      T converted[kMaxPanel * kChunk];
      for (int64_t p = 0; p < depth; p += kChunk) {
        const int64_t length = std::min(kChunk, depth - p);
        for (int i = 0; i < here; ++i) {
          const S* from = data + i * line_step_ + p;
          T* to = converted + i * kChunk;
          for (int64_t q = 0; q < length; ++q) to[q] = static_cast<T>(from[q]);
          rows[i] = to;
        }
        isa_table<GemmKernels<T>>().interleave(rows, here, width, length, out + p * width);
      }
    }
  }
}

template <class T, class S>
const T* StridedSource<T, S>::unpacked(int64_t* step) const {
  if constexpr (std::is_same_v<S, T>) {
    if (line_step_ == 1) {
      *step = k_step_;
      return data_;
    }
  }
  return nullptr;
}

namespace {

template <class T>
Status multiply_blocks(const GemmProblem<T>& problem, ParallelFor parallel_for,
                       const GemmKernels<T>& kernels) {
  const int64_t depth_step = ceil_div(problem.k, ceil_div(problem.k, kDepth));
  const int64_t column_step = std::min(round_up(problem.n, kernels.nr), kColumnsPerBlock);
  // Few rows pass over the right matrix too seldom to pay for a copy of it.
  int64_t plain_step = 0;
  const T* plain_b = problem.m <= kernels.plain_rows ? problem.b.unpacked(&plain_step) : nullptr;
  if (problem.m == 1 && plain_b != nullptr && !problem.accumulate &&
      problem.row_offsets == nullptr) {
    return multiply_row(problem, kernels, plain_b, plain_step, parallel_for);
  }
  const bool shared = problem.m <= kSharedRows;
  // With one block of rows a panel of the right matrix is used by one task, which packs it.
  const bool panels = plain_b == nullptr && problem.m <= kRowsPerBlock;
  const int64_t a_rows = shared ? round_up(problem.m, kernels.mr) : 0;
  const int64_t b_columns = panels ? 0 : column_step;
  Scratch<T> packed(depth_step * (b_columns + a_rows));
  MR_TRY(packed.status());
  T* const packed_b = packed.data();
  T* const packed_a = packed_b + depth_step * b_columns;
  const auto no_memory = [&] {
    return resource_exhausted("OOM when packing a block of a product of ", problem.m, " x ",
                              problem.n);
  };
  for (int64_t column = 0; column < problem.n; column += column_step) {
    const int64_t columns = std::min(column_step, problem.n - column);
    for (int64_t k = 0; k < problem.k; k += depth_step) {
      const int64_t depth = std::min(depth_step, problem.k - k);
      const T* plain = plain_b != nullptr ? plain_b + k * plain_step + column : nullptr;
      const int64_t first_packed = plain != nullptr ? columns / kernels.nr * kernels.nr : 0;
      if (!panels && first_packed < columns) {
        pack_panels(problem.b, column + first_packed, columns - first_packed, k, depth, kernels.nr,
                    packed_b + first_packed * depth, parallel_for);
      }
      const Pass<T> pass{
          problem,  kernels, k,         depth, column, columns, problem.accumulate || k > 0,
          packed_b, plain,   plain_step};
      if (shared) {
        pack_panels(problem.a, 0, problem.m, k, depth, kernels.mr, packed_a, parallel_for);
        if (!panels) {
          pass.run_shared(packed_a, parallel_for);
        } else if (!pass.run_panels(packed_a, parallel_for)) {
          return no_memory();
        }
      } else if (!pass.run_private(parallel_for)) {
        return no_memory();
      }
    }
  }
  return ok_status();
}

// Elements [k, ...) of another source's lines.
template <class T>
class SourceFrom final : public GemmSource<T> {
 public:
  SourceFrom(const GemmSource<T>& source, int64_t k) : source_(source), k_(k) {}
  void pack(int64_t line, int64_t count, int64_t k, int64_t depth, int width,
            T* out) const override {
    source_.pack(line, count, k_ + k, depth, width, out);
  }
  const T* unpacked(int64_t* step) const override {
    const T* data = source_.unpacked(step);
    return data == nullptr ? nullptr : data + k_ * *step;
  }

 private:
  const GemmSource<T>& source_;
  const int64_t k_;
};

// Into how many parts k is cut; 1: not at all.
template <class T>
int64_t split_parts(const GemmProblem<T>& problem) {
  const int64_t blocks = ceil_div(problem.k, kDepth);
  if (problem.row_offsets != nullptr || blocks < kSplitBlocks) return 1;
  if (problem.m > kSplitElements / problem.n) return 1;
  return std::min(blocks / 2, kSplitParts);
}

// Each part of k on one thread, with sums of its own; the first part's are C.
template <class T>
Status multiply_split(const GemmProblem<T>& problem, int64_t parts, ParallelFor parallel_for,
                      const GemmKernels<T>& kernels) {
  const int64_t size = problem.m * problem.n;
  Scratch<T> sums((parts - 1) * size);
  MR_TRY(sums.status());
  const int64_t step = ceil_div(problem.k, parts);
  const int64_t used = ceil_div(problem.k, step);
  std::atomic<bool> failed{false};
  const double cost = 2.0 * static_cast<double>(size) * static_cast<double>(step) / kFlopsPerNs;
  parallel_for(used, cost, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t k = part * step;
      const SourceFrom<T> a(problem.a, k), b(problem.b, k);
      GemmProblem<T> own{
          problem.m,   problem.n,         std::min(step, problem.k - k), a, b, problem.c,
          problem.ldc, problem.accumulate};
      if (part > 0) {
        own.c = sums.data() + (part - 1) * size;
        own.ldc = problem.n;
        own.accumulate = false;
      }
      if (!multiply_blocks(own, run_serially, kernels).ok()) failed = true;
    }
  });
  if (failed) {
    return resource_exhausted("OOM when packing blocks of a product of ", problem.m, " x ",
                              problem.n);
  }
  parallel_for(problem.m, static_cast<double>(problem.n * used) * 0.3,
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   for (int64_t part = 1; part < used; ++part) {
                     const T* from = sums.data() + (part - 1) * size + i * problem.n;
                     T* c = problem.c + i * problem.ldc;
                     for (int64_t j = 0; j < problem.n; ++j) c[j] += from[j];
                   }
                 }
               });
  return ok_status();
}

}  // namespace

template <class T>
Status gemm(const GemmProblem<T>& problem, ParallelFor parallel_for,
            const GemmKernels<T>& kernels) {
  if (problem.m == 0 || problem.n == 0) return ok_status();
  if (problem.k == 0) {
    if (!problem.accumulate) fill_rows(problem);
    return ok_status();
  }
  const int64_t parts = split_parts(problem);
  return parts > 1 ? multiply_split(problem, parts, parallel_for, kernels)
                   : multiply_blocks(problem, parallel_for, kernels);
}

namespace {

template <class S>
S element(const MatrixView<S>& view, int64_t i, int64_t j) {
  const S value = view.data[i * view.row_step + j * view.column_step];
  if constexpr (is_complex_v<S>) return view.conjugate ? std::conj(value) : value;
  return value;
}

template <class S>
void matmul_direct(int64_t m, int64_t n, int64_t k, MatrixView<S> a, MatrixView<S> b, S* c) {
  using Sum = SumType<S>;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      Sum sum{};
      for (int64_t p = 0; p < k; ++p) {
        sum += static_cast<Sum>(element(a, i, p)) * static_cast<Sum>(element(b, p, j));
      }
      c[i * n + j] = static_cast<S>(sum);
    }
  }
}

template <class T, class S>
Status multiply_into(int64_t m, int64_t n, int64_t k, const MatrixView<S>& a,
                     const MatrixView<S>& b, T* c, ParallelFor parallel_for) {
  const StridedSource<T, S> left(a.data, a.row_step, a.column_step);
  const StridedSource<T, S> right(b.data, b.column_step, b.row_step);
  return gemm<T>({m, n, k, left, right, c, n}, parallel_for);
}

// The real (part 0) or imaginary (part 1) numbers of a complex matrix.
template <class T>
MatrixView<T> part_of(const MatrixView<std::complex<T>>& view, int part) {
  return {reinterpret_cast<const T*>(view.data) + part, 2 * view.row_step, 2 * view.column_step};
}

// Four real products.
template <class T>
Status multiply_complex(int64_t m, int64_t n, int64_t k, const MatrixView<std::complex<T>>& a,
                        const MatrixView<std::complex<T>>& b, std::complex<T>* c,
                        ParallelFor parallel_for) {
  const int64_t size = m * n;
  Scratch<T> products(4 * size);
  MR_TRY(products.status());
  T* const p = products.data();
  for (int i = 0; i < 4; ++i) {
    MR_TRY((multiply_into<T, T>(m, n, k, part_of(a, i / 2), part_of(b, i % 2), p + i * size,
                                parallel_for)));
  }
  const T sign_a = a.conjugate ? T(-1) : T(1), sign_b = b.conjugate ? T(-1) : T(1);
  parallel_for(size, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      c[i] = {p[i] - sign_a * sign_b * p[3 * size + i],
              sign_b * p[size + i] + sign_a * p[2 * size + i]};
    }
  });
  return ok_status();
}

}  // namespace

template <class S>
Status matmul(int64_t m, int64_t n, int64_t k, MatrixView<S> a, MatrixView<S> b, S* c,
              ParallelFor parallel_for) {
  if (m == 0 || n == 0) return ok_status();
  if (k == 0) {
    std::fill_n(c, m * n, S{});
    return ok_status();
  }
  if (m <= kSmall && n <= kSmall && k <= kSmall && m * n * k <= kSmall) {
    matmul_direct(m, n, k, a, b, c);
    return ok_status();
  }
  using T = SumType<S>;
  if constexpr (is_complex_v<S>) {
    return multiply_complex(m, n, k, a, b, c, parallel_for);
  } else if constexpr (sizeof(T) == sizeof(S)) {
    // Signed and unsigned integers of one size may alias.
    const auto as_sum = [](const MatrixView<S>& view) {
      return MatrixView<T>{reinterpret_cast<const T*>(view.data), view.row_step, view.column_step};
    };
    return multiply_into<T, T>(m, n, k, as_sum(a), as_sum(b), reinterpret_cast<T*>(c),
                               parallel_for);
  } else {
    Scratch<T> sums(m * n);
    MR_TRY(sums.status());
    MR_TRY((multiply_into<T, S>(m, n, k, a, b, sums.data(), parallel_for)));
    parallel_for(m * n, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) c[i] = static_cast<S>(sums.data()[i]);
    });
    return ok_status();
  }
}

template <class S>
void matmul_reference(int64_t m, int64_t n, int64_t k, MatrixView<S> a, MatrixView<S> b, S* c) {
  matmul_direct(m, n, k, a, b, c);
}

#define MR_INSTANTIATE_GEMM(T)     \
  template class StridedSource<T>; \
  template Status gemm<T>(const GemmProblem<T>&, ParallelFor, const GemmKernels<T>&);
MR_INSTANTIATE_GEMM(float)
MR_INSTANTIATE_GEMM(double)
MR_INSTANTIATE_GEMM(uint32_t)
MR_INSTANTIATE_GEMM(uint64_t)
#undef MR_INSTANTIATE_GEMM
template class StridedSource<float, Half>;
template class StridedSource<float, BFloat16>;

#define MR_INSTANTIATE_MATMUL(S)                                                         \
  template Status matmul<S>(int64_t, int64_t, int64_t, MatrixView<S>, MatrixView<S>, S*, \
                            ParallelFor);                                                \
  template void matmul_reference<S>(int64_t, int64_t, int64_t, MatrixView<S>, MatrixView<S>, S*);
MR_INSTANTIATE_MATMUL(float)
MR_INSTANTIATE_MATMUL(double)
MR_INSTANTIATE_MATMUL(Half)
MR_INSTANTIATE_MATMUL(BFloat16)
MR_INSTANTIATE_MATMUL(int32_t)
MR_INSTANTIATE_MATMUL(int64_t)
MR_INSTANTIATE_MATMUL(uint32_t)
MR_INSTANTIATE_MATMUL(uint64_t)
MR_INSTANTIATE_MATMUL(Complex64)
MR_INSTANTIATE_MATMUL(Complex128)
#undef MR_INSTANTIATE_MATMUL

}  // namespace millrace
