#include "millrace/ops/linalg/gemm.h"

#include <algorithm>
#include <atomic>

#include "millrace/ops/linalg/gemm_few_rows.h"
#include "millrace/ops/linalg/gemm_sizes.h"
#include "millrace/ops/linalg/scratch.h"
#include "millrace/ops/rounding.h"

namespace millrace {
namespace {

constexpr int64_t kRowsPerBlock = 192;
constexpr int64_t kLeastRows = 24;
// A group of columns is cut into tasks of so many rows or more.
constexpr int64_t kLeastRowsOfColumns = 64;
// Of an operand that all threads share, so many elements are read at a time, so that they stay in
// the last cache.
constexpr int64_t kSharedElements = int64_t{1} << 22;
// Up to so many bytes, lines of the left matrix that lie side by side are read where they lie as
// quickly as from panels.
constexpr int64_t kSmallBytes = int64_t{128} << 10;
constexpr int64_t kTinyBytes = int64_t{24} << 10;
// A left matrix of so many bytes, read where it lies, may be read for each group of columns.
constexpr int64_t kShortBytes = int64_t{4} << 20;
constexpr int kFarRows = 8;
// So many bytes of the left matrix remain in the second-level cache until they are read again; of
// longer rows so many of the beginning are fetched before.
constexpr int64_t kNearBytes = int64_t{256} << 10;
constexpr int64_t kFetchedBytes = 256;
constexpr double kFlopsPerNs = 50;
// Where C has at most kSplitElements, too few for tasks of their own, and k has kSplitBlocks
// blocks of kSplitDepth or more, k is cut into up to kSplitParts parts.
constexpr int64_t kSplitElements = int64_t{1} << 16;
constexpr int64_t kSplitBlocks = 6;
constexpr int64_t kSplitDepth = 384;
constexpr int64_t kSplitParts = 8;
constexpr int64_t kManyColumns = 512;

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

// Columns of the panels of a right matrix of n columns: as many as a tile may have, or a vector
// less where that leaves no panel of few.
template <class T>
int panel_columns(int64_t n, const GemmKernels<T>& kernels) {
  const int64_t vectors = ceil_div(n, kernels.lanes);
  return static_cast<int>(kernels.lanes *
                          ceil_div(vectors, ceil_div(vectors, kernels.nr / kernels.lanes)));
}

// How a problem is cut: fixed by its sizes and the kernels.
template <class T>
struct Cut {
  Cut(const GemmProblem<T>& problem, const GemmKernels<T>& kernels)
      : depth(ceil_div(problem.k, ceil_div(problem.k, kDepth))),
        wide(panel_columns(problem.n, kernels)),
        left(problem.a.in_place()),
        right(problem.b.in_place()) {
    int most = kernels.tile_rows(wide);
    // Rows as far apart as these fight for the same places of the cache.
    if (left.k_step == 1 && left.line_step % kFarElements<T> == 0) most = std::min(most, kFarRows);
    tall = static_cast<int>(ceil_div(problem.m, ceil_div(problem.m, most)));
    left_width = 2 * tall;
    constexpr auto kSize = static_cast<int64_t>(sizeof(T));
    // A tile reads its rows in step, so that each is one stream; what lies across them is packed.
    left_in_place =
        left.data != nullptr &&
        (left.k_step == 1 || (left.line_step == 1 && problem.m * problem.k * kSize <= kSmallBytes));
    side_by_side = right.data != nullptr && right.line_step == 1;
    const bool tight = right.k_step == wide || right.k_step * problem.k * kSize <= kTinyBytes;
    right_in_place = side_by_side && problem.n % kernels.lanes == 0 && (tight || problem.m <= tall);
    // Tasks are groups of columns, of some rows of the left matrix, or of rows. What a task packs
    // is its own; what all share goes from one processor's caches to the other's.
    const bool short_left =
        problem.m <= std::max(problem.n, kRowsPerBlock) ||
        (left_in_place && problem.m <= kShortBytes / kSize / std::max<int64_t>(problem.k, 1));
    by_columns = short_left && problem.n >= 2 * wide;
  }

  int64_t depth;
  int wide;        // columns of a tile: of the right matrix's panels
  int tall;        // its rows
  int left_width;  // of the left matrix's panels: the rows of two tiles
  typename GemmSource<T>::Lines left, right;
  bool left_in_place, right_in_place;
  bool side_by_side;  // the right matrix's columns are, in its rows
  bool by_columns;
};

// Elements [k, k + depth) of rows from `row` on, for tiles.
template <class T>
class LeftBlock {
 public:
  static LeftBlock in_place(const typename GemmSource<T>::Lines& lines, int64_t row, int64_t k) {
    return {lines.data + row * lines.line_step + k * lines.k_step, lines.line_step, lines.k_step,
            0};
  }
  static LeftBlock packed(const T* panels, int64_t depth, int width) {
    return {panels, 1, width, depth};
  }
  // From row i of the block on, up to the end of its panel.
  GemmRows<T> rows(int64_t i) const {
    if (depth_ == 0) return {data_ + i * row_step_, row_step_, k_step_};
    return {data_ + i / k_step_ * k_step_ * depth_ + i % k_step_, row_step_, k_step_};
  }

 private:
  LeftBlock(const T* data, int64_t row_step, int64_t k_step, int64_t depth)
      : data_(data), row_step_(row_step), k_step_(k_step), depth_(depth) {}

  const T* data_;
  int64_t row_step_, k_step_;
  int64_t depth_;  // of panels; 0 where there are none
};

// A block of k of a panel of the right matrix. Where `copy` is set the panel lies among others, and
// the first tile copies it there.
template <class T>
struct RightPanel {
  const T* data;
  int64_t step;
  T* copy;
};

// One problem on its way: multiplies rectangles of C.
template <class T>
class Product {
 public:
  Product(const GemmProblem<T>& problem, const GemmKernels<T>& kernels)
      : problem_(problem), kernels_(kernels), cut_(problem, kernels) {}

  Status run(ParallelFor parallel_for) const {
    const bool packs = cut_.by_columns ? !cut_.left_in_place : !cut_.right_in_place;
    const int width = cut_.by_columns ? cut_.left_width : cut_.wide;
    const int64_t lines = round_up(cut_.by_columns ? problem_.m : problem_.n, width);
    const int64_t blocks = std::max<int64_t>(1, kSharedElements / lines / cut_.depth);
    const int64_t chunk = std::min(problem_.k, blocks * cut_.depth);
    Scratch<T> shared(packs ? lines * chunk : 0);
    MR_TRY(shared.status());
    std::atomic<bool> short_of_memory{false};
    for (int64_t k = 0; k < problem_.k; k += chunk) {
      const int64_t length = std::min(chunk, problem_.k - k);
      if (packs) prepare(k, length, width, lines, shared.data(), parallel_for);
      const Chunk part{k, length, shared.data()};
      if (cut_.by_columns) {
        run_by_columns(part, short_of_memory, parallel_for);
      } else {
        run_by_rows(part, short_of_memory, parallel_for);
      }
    }
    if (!short_of_memory) return ok_status();
    return resource_exhausted("OOM when packing a block of a product of ", problem_.m, " x ",
                              problem_.n);
  }

 private:
  // Products [k, k + length) of every sum; one operand lies packed at `shared`, or in place.
  struct Chunk {
    int64_t k, length;
    const T* shared;
  };

  void prepare(int64_t k, int64_t length, int width, int64_t lines, T* out,
               ParallelFor parallel_for) const {
    const GemmSource<T>& source = cut_.by_columns ? problem_.a : problem_.b;
    const int64_t count = cut_.by_columns ? problem_.m : problem_.n;
    const int64_t panels = lines / width;
    const int64_t blocks = ceil_div(length, cut_.depth);
    parallel_for(panels * blocks, static_cast<double>(width * cut_.depth) * 0.2,
                 [&](int64_t begin, int64_t end) {
                   for (int64_t t = begin; t < end;) {
                     // The panels of one block that follow each other.
                     const int64_t block = t / panels, panel = t % panels;
                     const int64_t last = std::min(panels, panel + end - t);
                     const int64_t from = block * cut_.depth;
                     const int64_t depth = std::min(cut_.depth, length - from);
                     const int64_t line = panel * width;
                     source.pack(line, std::min(last * width, count) - line, k + from, depth, width,
                                 out + from * lines + line * depth);
                     t += last - panel;
                   }
                 });
  }

  // Each task packs the panels of columns that it multiplies, one at a time.
  void run_by_columns(const Chunk& chunk, std::atomic<bool>& short_of_memory,
                      ParallelFor parallel_for) const {
    const int64_t tiles = ceil_div(problem_.n, cut_.wide);
    const int64_t parts =
        std::clamp<int64_t>(kTasks / tiles, 1, ceil_div(problem_.m, kLeastRowsOfColumns));
    const int64_t rows = round_up(ceil_div(problem_.m, parts), row_unit());
    const int64_t row_parts = ceil_div(problem_.m, rows);
    parallel_for(tiles * row_parts, nanoseconds(rows, cut_.wide, chunk.length),
                 [&](int64_t begin, int64_t end) {
                   Scratch<T> own(cut_.right_in_place ? 0 : cut_.wide * cut_.depth);
                   if (own.data() == nullptr) {
                     short_of_memory = true;
                     return;
                   }
                   for (int64_t done = 0; done < chunk.length; done += cut_.depth) {
                     for (int64_t t = begin; t < end; ++t) {
                       const int64_t row = t % row_parts * rows;
                       multiply_columns(chunk, done, row, std::min(rows, problem_.m - row),
                                        t / row_parts * cut_.wide, own.data());
                     }
                   }
                 });
  }

  // Whole tiles, or panels where the left matrix lies in them.
  int64_t row_unit() const { return cut_.left_in_place ? cut_.tall : cut_.left_width; }

  void multiply_columns(const Chunk& chunk, int64_t done, int64_t row, int64_t rows, int64_t column,
                        T* own) const {
    const int64_t depth = std::min(cut_.depth, chunk.length - done);
    const int64_t wide = std::min<int64_t>(cut_.wide, problem_.n - column);
    const int64_t lines = round_up(problem_.m, cut_.left_width);
    const auto left = cut_.left_in_place
                          ? LeftBlock<T>::in_place(cut_.left, row, chunk.k + done)
                          : LeftBlock<T>::packed(chunk.shared + done * lines + row * depth, depth,
                                                 cut_.left_width);
    multiply(left, right_panel(column, wide, chunk.k + done, depth, own),
             {row, rows, column, wide, depth}, problem_.accumulate || chunk.k + done > 0,
             rows * depth * static_cast<int64_t>(sizeof(T)) > kNearBytes);
  }

  // Each task packs the rows it multiplies.
  void run_by_rows(const Chunk& chunk, std::atomic<bool>& short_of_memory,
                   ParallelFor parallel_for) const {
    const int64_t rows =
        round_up(std::clamp(ceil_div(problem_.m, kTasks), kLeastRows, kRowsPerBlock), row_unit());
    parallel_for(ceil_div(problem_.m, rows), nanoseconds(rows, problem_.n, chunk.length),
                 [&](int64_t begin, int64_t end) {
                   Scratch<T> own(cut_.left_in_place ? 0 : rows * cut_.depth);
                   if (own.data() == nullptr) {
                     short_of_memory = true;
                     return;
                   }
                   for (int64_t t = begin; t < end; ++t) {
                     const int64_t row = t * rows;
                     for (int64_t done = 0; done < chunk.length; done += cut_.depth) {
                       multiply_rows(chunk, done, row, std::min(rows, problem_.m - row),
                                     own.data());
                     }
                   }
                 });
  }

  void multiply_rows(const Chunk& chunk, int64_t done, int64_t row, int64_t rows, T* own) const {
    const int64_t k = chunk.k + done;
    const int64_t depth = std::min(cut_.depth, chunk.length - done);
    const int64_t lines = round_up(problem_.n, cut_.wide);
    if (!cut_.left_in_place) problem_.a.pack(row, rows, k, depth, cut_.left_width, own);
    const auto left = cut_.left_in_place ? LeftBlock<T>::in_place(cut_.left, row, k)
                                         : LeftBlock<T>::packed(own, depth, cut_.left_width);
    for (int64_t column = 0; column < problem_.n; column += cut_.wide) {
      const int64_t wide = std::min<int64_t>(cut_.wide, problem_.n - column);
      const RightPanel<T> right =
          cut_.right_in_place
              ? right_panel(column, wide, k, depth, nullptr)
              : RightPanel<T>{chunk.shared + done * lines + column * depth, cut_.wide, nullptr};
      multiply(left, right, {row, rows, column, wide, depth}, problem_.accumulate || k > 0,
               column == 0);
    }
  }

  // In place, or at `own` sooner or later.
  RightPanel<T> right_panel(int64_t column, int64_t wide, int64_t k, int64_t depth, T* own) const {
    const T* data = cut_.side_by_side ? cut_.right.data + k * cut_.right.k_step + column : nullptr;
    if (cut_.right_in_place) return {data, cut_.right.k_step, nullptr};
    if (cut_.side_by_side && wide == cut_.wide) return {data, cut_.right.k_step, own};
    problem_.b.pack(column, wide, k, depth, cut_.wide, own);
    return {own, cut_.wide, nullptr};
  }

  // Rows [row, row + rows) times columns [column, column + wide), `depth` products of each sum.
  struct Part {
    int64_t row, rows, column, wide, depth;
  };

  // `far`: no cache near by holds the left matrix.
  void multiply(const LeftBlock<T>& left, RightPanel<T> right, const Part& part, bool accumulate,
                bool far) const {
    const auto columns = static_cast<int>(round_up(part.wide, kernels_.lanes));
    const bool fetches = far && cut_.left_in_place && cut_.left.k_step == 1;
    int64_t offsets[kMaxPanel];
    for (int64_t i = 0; i < part.rows; i += cut_.tall) {
      const int tall = static_cast<int>(std::min<int64_t>(cut_.tall, part.rows - i));
      const GemmRows<T> a = left.rows(i);
      if (fetches && i + cut_.tall < part.rows) {
        const int64_t next = std::min<int64_t>(cut_.tall, part.rows - i - cut_.tall);
        fetch(left.rows(i + cut_.tall), next, part.depth);
      }
      if (problem_.row_offsets == nullptr && part.wide == columns) {
        kernels_.tile(tall, columns, part.depth, a, right.data, right.step, right.copy,
                      problem_.c + (part.row + i) * problem_.ldc + part.column, problem_.ldc,
                      accumulate);
      } else {
        T tile[kMaxPanel * kMaxPanel];
        kernels_.tile(tall, columns, part.depth, a, right.data, right.step, right.copy, tile,
                      columns, false);
        if (problem_.row_offsets != nullptr) {
          problem_.row_offsets(problem_.row_context, part.row + i, tall, offsets);
        }
        for (int r = 0; r < tall; ++r) {
          const int64_t offset =
              problem_.row_offsets != nullptr ? offsets[r] : (part.row + i + r) * problem_.ldc;
          T* c = problem_.c + offset + part.column;
          const T* from = tile + r * columns;
          if (accumulate) {
            for (int64_t q = 0; q < part.wide; ++q) c[q] += from[q];
          } else {
            std::copy_n(from, part.wide, c);
          }
        }
      }
      if (right.copy != nullptr) right = {right.copy, cut_.wide, nullptr};
    }
  }

  // Asks for the beginnings of rows that lie in memory; processors foresee what follows them.
  static void fetch(const GemmRows<T>& rows, int64_t count, int64_t depth) {
    constexpr int64_t kLine = 64 / sizeof(T);
    const int64_t end = std::min<int64_t>(depth, kFetchedBytes / sizeof(T));
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t p = 0; p < end; p += kLine) {
        __builtin_prefetch(rows.data + i * rows.row_step + p);
      }
    }
  }

  static double nanoseconds(int64_t rows, int64_t wide, int64_t depth) {
    return 2.0 * static_cast<double>(rows) * static_cast<double>(wide) *
           static_cast<double>(depth) / kFlopsPerNs;
  }

  const GemmProblem<T>& problem_;
  const GemmKernels<T>& kernels_;
  const Cut<T> cut_;
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

template <class T>
Status multiply_blocks(const GemmProblem<T>& problem, ParallelFor parallel_for,
                       const GemmKernels<T>& kernels) {
  const auto b = problem.b.in_place();
  if (problem.m == 1 && b.data != nullptr && b.line_step == 1 && !problem.accumulate &&
      problem.row_offsets == nullptr) {
    return multiply_row(problem, kernels, b.data, b.k_step, parallel_for);
  }
  const FewRows<T> few_rows(problem, kernels);
  if (few_rows.takes()) return few_rows.run(parallel_for);
  if (problem.m > problem.n) {
    const GemmProblem<T> turned{problem.n, problem.m, problem.k,   problem.b,
                                problem.a, problem.c, problem.ldc, problem.accumulate};
    const FewRows<T> few_columns(turned, kernels, true);
    if (few_columns.takes()) return few_columns.run(parallel_for);
  }
  return Product<T>(problem, kernels).run(parallel_for);
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
  typename GemmSource<T>::Lines in_place() const override {
    auto lines = source_.in_place();
    if (lines.data != nullptr) lines.data += k_ * lines.k_step;
    return lines;
  }

 private:
  const GemmSource<T>& source_;
  const int64_t k_;
};

// Into how many parts k is cut; 1: not at all.
template <class T>
int64_t split_parts(const GemmProblem<T>& problem, const GemmKernels<T>& kernels) {
  const int64_t blocks = ceil_div(problem.k, kSplitDepth);
  if (problem.row_offsets != nullptr || blocks < kSplitBlocks) return 1;
  if (problem.m > kSplitElements / problem.n) return 1;
  // Its columns are enough for all threads.
  if (problem.n >= kManyColumns && FewRows<T>(problem, kernels).takes()) return 1;
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
  const int64_t parts = split_parts(problem, kernels);
  return parts > 1 ? multiply_split(problem, parts, parallel_for, kernels)
                   : multiply_blocks(problem, parallel_for, kernels);
}

template Status gemm<float>(const GemmProblem<float>&, ParallelFor, const GemmKernels<float>&);
template Status gemm<double>(const GemmProblem<double>&, ParallelFor, const GemmKernels<double>&);
template Status gemm<uint32_t>(const GemmProblem<uint32_t>&, ParallelFor,
                               const GemmKernels<uint32_t>&);
template Status gemm<uint64_t>(const GemmProblem<uint64_t>&, ParallelFor,
                               const GemmKernels<uint64_t>&);

}  // namespace millrace
