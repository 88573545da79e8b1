#include "millrace/ops/linalg/gemm.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <type_traits>

#include "millrace/base/bfloat16_products.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/linalg/scratch.h"
#include "millrace/tensor/complex.h"
#include "millrace/tensor/half.h"

namespace millrace {
namespace {

// So many products of a sum at a time: a panel of the right matrix (kDepth x nr) then stays in the
// second-level cache, with a block of kRowsPerBlock rows of the left one.
constexpr int64_t kDepth = 512;
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
// A matrix of so many columns or more is multiplied with so few rows as it lies in memory, so many
// of its rows at a time; they are fetched so many strips ahead.
constexpr int64_t kFewRows = 56;
constexpr int64_t kWideColumns = 256;
constexpr int64_t kStripDepth = 32;
constexpr int64_t kStripsAhead = 4;
// So is a left matrix whose rows lie side by side as well, as for the gradient of a filter: both
// are read once, where they lie, for a result of up to so many elements and lines, if sums are not
// short.
constexpr int64_t kSumsAtHand = int64_t{1} << 18;
constexpr int64_t kLinesAtHand = 1024;
constexpr int64_t kLeastLines = 64;
constexpr double kStripFlopsPerNs = 100;
// Columns that are contiguous, where they are so long; blocks of them stay in the first-level cache
// for all rows. Sums stop at a whole number of vectors.
constexpr int64_t kDotDepth = 256;
constexpr int64_t kDotBlock = 1024;
constexpr int64_t kDotStep = 16;
// Enough pieces that threads finish together.
constexpr int64_t kTasks = 16;
// Lines a multiple of 2048 bytes apart share few places of the first-level cache, where so many of
// them remain.
template <class T>
constexpr int64_t kFarElements = 2048 / sizeof(T);
constexpr int kFarRows = 8;
constexpr int kMaxPanel = 64;
constexpr int kMaxLanes = 16;
// Products of at most this many multiplications are not worth packing.
constexpr int64_t kSmall = 8 * 8 * 8;
constexpr double kFlopsPerNs = 50;
// Where C has at most kSplitElements, too few for tasks of their own, and k has kSplitBlocks
// blocks of kSplitDepth or more, k is cut into up to kSplitParts parts.
constexpr int64_t kSplitElements = int64_t{1} << 16;
constexpr int64_t kSplitBlocks = 6;
constexpr int64_t kSplitDepth = 384;
constexpr int64_t kSplitParts = 8;
constexpr int64_t kManyColumns = 512;

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
    multiply(left, right_panel(column, wide, chunk.k + done, depth, own), row, rows, column, wide,
             depth, problem_.accumulate || chunk.k + done > 0);
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
      multiply(left, right, row, rows, column, wide, depth, problem_.accumulate || k > 0);
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

  // Rows [row, row + rows) times columns [column, column + wide).
  void multiply(const LeftBlock<T>& left, RightPanel<T> right, int64_t row, int64_t rows,
                int64_t column, int64_t wide, int64_t depth, bool accumulate) const {
    const auto columns = static_cast<int>(round_up(wide, kernels_.lanes));
    int64_t offsets[kMaxPanel];
    for (int64_t i = 0; i < rows; i += cut_.tall) {
      const int tall = static_cast<int>(std::min<int64_t>(cut_.tall, rows - i));
      const GemmRows<T> a = left.rows(i);
      if (problem_.row_offsets == nullptr && wide == columns) {
        kernels_.tile(tall, columns, depth, a, right.data, right.step, right.copy,
                      problem_.c + (row + i) * problem_.ldc + column, problem_.ldc, accumulate);
      } else {
        T tile[kMaxPanel * kMaxPanel];
        kernels_.tile(tall, columns, depth, a, right.data, right.step, right.copy, tile, columns,
                      false);
        if (problem_.row_offsets != nullptr) {
          problem_.row_offsets(problem_.row_context, row + i, tall, offsets);
        }
        for (int r = 0; r < tall; ++r) {
          const int64_t offset =
              problem_.row_offsets != nullptr ? offsets[r] : (row + i + r) * problem_.ldc;
          T* c = problem_.c + offset + column;
          const T* from = tile + r * columns;
          if (accumulate) {
            for (int64_t q = 0; q < wide; ++q) c[q] += from[q];
          } else {
            std::copy_n(from, wide, c);
          }
        }
      }
      if (right.copy != nullptr) right = {right.copy, cut_.wide, nullptr};
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
typename GemmSource<T>::Lines StridedSource<T, S>::in_place() const {
  if constexpr (std::is_same_v<S, T>) return {data_, line_step_, k_step_};
  return {};
}

namespace {

// Few rows times a wide matrix, which is read once, where it lies: nothing of it is packed, and
// threads share its columns. What is read of it at a time stays in the caches for all rows.
template <class T>
class FewRows {
 public:
  FewRows(const GemmProblem<T>& problem, const GemmKernels<T>& kernels, bool turned = false)
      : problem_(problem),
        kernels_(kernels),
        turned_(turned),
        left_(problem.a.in_place()),
        right_(problem.b.in_place()) {
    if (problem.row_offsets != nullptr || right_.data == nullptr) return;
    if (right_.line_step == 1) {
      const bool sums_at_hand = left_.line_step == 1 && problem.m <= problem.n &&
                                problem.m * problem.n <= kSumsAtHand && problem.n <= kLinesAtHand &&
                                problem.n >= kLeastLines && problem.k >= kLeastLines;
      const bool few_rows = problem.m <= kFewRows && problem.n >= kWideColumns && !turned_;
      strips_ = kernels.strip_rows > 0 && (few_rows || sums_at_hand);
      if (!strips_) return;
      tall_ = static_cast<int>(ceil_div(problem.m, ceil_div(problem.m, kernels.strip_rows)));
      unit_ = kernels.strip_lanes(tall_);
      depth_ = ceil_div(problem.k, ceil_div(problem.k, kStripDepth));
    } else if (right_.k_step == 1 && problem.k >= kDotDepth && problem.m <= kFewRows && !turned_) {
      dots_ = true;
      tall_ = static_cast<int>(ceil_div(problem.m, ceil_div(problem.m, kernels.dot_rows)));
      unit_ = kernels.dot_columns;
      depth_ = round_up(ceil_div(problem.k, ceil_div(problem.k, kDotBlock)), kDotStep);
    }
  }

  // Whether the problem is one of these.
  bool takes() const { return strips_ || dots_; }

  Status run(ParallelFor parallel_for) const {
    if (reads_left_in_place()) {
      return multiply({left_.data, left_.line_step, left_.k_step}, parallel_for);
    }
    Scratch<T> packed(problem_.m * problem_.k);
    MR_TRY(packed.status());
    pack_left(packed.data(), parallel_for);
    return multiply({packed.data(), dots_ ? problem_.k : 1, dots_ ? 1 : problem_.m}, parallel_for);
  }

 private:
  // Lines a multiple of this apart would fight for the same places of the cache.
  bool reads_left_in_place() const {
    if (left_.data == nullptr) return false;
    if (dots_) return left_.k_step == 1;
    return left_.line_step == 1 || (left_.k_step == 1 && left_.line_step % kFarElements<T> != 0);
  }

  // As it is read: a line's elements after each other, or the lines side by side.
  void pack_left(T* out, ParallelFor parallel_for) const {
    const int64_t depth = std::max(depth_, kDepth);
    const int64_t units = dots_ ? problem_.m : ceil_div(problem_.k, depth);
    const int64_t elements = problem_.m * problem_.k;
    parallel_for(units, static_cast<double>(elements / units) * 0.5,
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     if (dots_) {
                       problem_.a.pack(i, 1, 0, problem_.k, 1, out + i * problem_.k);
                     } else {
                       const int64_t k = i * depth;
                       problem_.a.pack(0, problem_.m, k, std::min(depth, problem_.k - k),
                                       static_cast<int>(problem_.m), out + k * problem_.m);
                     }
                   }
                 });
  }

  Status multiply(const GemmRows<T>& left, ParallelFor parallel_for) const {
    // Threads take neighbouring columns, many at a time: what is read together lies together.
    const int64_t units = ceil_div(problem_.n, unit_);
    const int64_t parts = std::min(units, kTasks);
    const double cost = 2.0 * static_cast<double>(problem_.m * problem_.n) *
                        static_cast<double>(problem_.k) / kStripFlopsPerNs /
                        static_cast<double>(parts);
    std::atomic<bool> short_of_memory{false};
    parallel_for(parts, cost, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        const int64_t from = units * part / parts * unit_;
        const int64_t to = std::min(units * (part + 1) / parts * unit_, problem_.n);
        if (dots_) {
          multiply_dots(left, from, to);
        } else if (!multiply_strips(left, from, to)) {
          short_of_memory = true;
        }
      }
    });
    if (!short_of_memory) return ok_status();
    return resource_exhausted("OOM when summing a product of ", problem_.m, " x ", problem_.n);
  }

  // Columns [from, to). Few rows of the right matrix are read at a time, a strip of columns after
  // the other, so many of them that they lie in all places of the caches, and so few that they
  // remain there until all tiles have read them, though they be a power of two apart. The sums of
  // all these columns stay in the second-level cache until they are complete.
  bool multiply_strips(const GemmRows<T>& left, int64_t from, int64_t to) const {
    Scratch<T> scratch(problem_.m * round_up(to - from, unit_));
    if (scratch.data() == nullptr) return false;
    for (int64_t k = 0; k < problem_.k; k += depth_) {
      for (int64_t j = from; j < to; j += unit_) {
        multiply_strip(left, k, j, std::min(unit_, to - j), ahead_of(from, to, k, j),
                       scratch.data() + (j - from) * problem_.m);
      }
    }
    for (int64_t j = from; j < to; j += unit_) {
      const T* sums = scratch.data() + (j - from) * problem_.m;
      const int64_t wide = std::min(unit_, to - j);
      if (turned_) {
        for (int64_t q = 0; q < wide; ++q) {
          T* const c = problem_.c + (j + q) * problem_.ldc;
          for (int64_t i = 0; i < problem_.m; ++i) {
            const T sum = sums[i * unit_ + q];
            c[i] = problem_.accumulate ? c[i] + sum : sum;
          }
        }
        continue;
      }
      for (int64_t i = 0; i < problem_.m; ++i, sums += unit_) {
        T* const c = problem_.c + i * problem_.ldc + j;
        if (problem_.accumulate) {
          for (int64_t q = 0; q < wide; ++q) c[q] += sums[q];
        } else {
          std::copy_n(sums, wide, c);
        }
      }
    }
    return true;
  }

  // What is read some strips later than columns from j on.
  const T* ahead_of(int64_t from, int64_t to, int64_t k, int64_t j) const {
    int64_t next = j + kStripsAhead * unit_;
    if (next >= to) {
      next -= round_up(to - from, unit_);
      k += depth_;
    }
    if (next + unit_ > to || next < from || k + depth_ > problem_.k) return nullptr;
    return right_.data + k * right_.k_step + next;
  }

  // Adds depth_ products to each sum of a strip, which lie row by row, or stores them there.
  void multiply_strip(const GemmRows<T>& left, int64_t k, int64_t column, int64_t wide,
                      const T* ahead, T* sums) const {
    const int64_t depth = std::min(depth_, problem_.k - k);
    const int64_t whole = wide / kernels_.lanes * kernels_.lanes;
    const T* const right = right_.data + k * right_.k_step + column;
    // Columns that are no whole vector.
    T panel[kStripDepth * kMaxLanes];
    if (whole < wide) {
      problem_.b.pack(column + whole, wide - whole, k, depth, kernels_.lanes, panel);
    }
    for (int64_t i = 0; i < problem_.m; i += tall_) {
      const int rows = static_cast<int>(std::min<int64_t>(tall_, problem_.m - i));
      const GemmRows<T> a{left.data + i * left.row_step + k * left.k_step, left.row_step,
                          left.k_step};
      T* const c = sums + i * unit_;
      if (whole > 0) {
        kernels_.strip(rows, static_cast<int>(whole), depth, a, right, right_.k_step,
                       i == 0 ? ahead : nullptr, c, unit_, k > 0);
      }
      if (whole < wide) {
        kernels_.strip(rows, kernels_.lanes, depth, a, panel, kernels_.lanes, nullptr, c + whole,
                       unit_, k > 0);
      }
    }
  }

  void multiply_dots(const GemmRows<T>& left, int64_t from, int64_t to) const {
    for (int64_t k = 0; k < problem_.k; k += depth_) {
      for (int64_t j = from; j < to; j += unit_) {
        // What is read next: of this block of k, or of the next one.
        const bool same = j + unit_ < to;
        const int64_t next = same ? j + unit_ : from, next_k = same ? k : k + depth_;
        const T* const ahead = next_k >= problem_.k || to - next < unit_
                                   ? nullptr
                                   : right_.data + next * right_.line_step + next_k;
        multiply_dots(left, k, j, std::min(unit_, to - j), ahead);
      }
    }
  }

  void multiply_dots(const GemmRows<T>& left, int64_t k, int64_t column, int64_t wide,
                     const T* ahead) const {
    const int64_t depth = std::min(depth_, problem_.k - k);
    const bool accumulate = problem_.accumulate || k > 0;
    const T* const right = right_.data + column * right_.line_step + k;
    // Each tile fetches some of the columns that come next.
    const auto tiles = static_cast<int>(ceil_div(problem_.m, tall_));
    const int each = (kernels_.dot_columns + tiles - 1) / tiles;
    int fetched = 0;
    for (int64_t i = 0; i < problem_.m; i += tall_) {
      const int fetch = ahead == nullptr ? 0 : std::min(each, kernels_.dot_columns - fetched);
      kernels_.dots(static_cast<int>(std::min<int64_t>(tall_, problem_.m - i)),
                    static_cast<int>(wide), depth, left.data + k + i * left.row_step, left.row_step,
                    right, right_.line_step,
                    fetch == 0 ? nullptr : ahead + fetched * right_.line_step, fetch,
                    problem_.c + i * problem_.ldc + column, problem_.ldc, accumulate);
      fetched += fetch;
    }
  }

  const GemmProblem<T>& problem_;
  const GemmKernels<T>& kernels_;
  const bool turned_;
  const typename GemmSource<T>::Lines left_, right_;
  bool strips_ = false, dots_ = false;
  int tall_ = 1;       // rows of a tile
  int64_t unit_ = 1;   // its columns
  int64_t depth_ = 1;  // products of a sum at a time
};

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

// Lines of bfloat16 in memory, as pairs of what follows each other in k (PairKernels); after the
// last of `depth` elements comes a zero where that makes no pair.
class PairSource final : public GemmSource<float> {
 public:
  PairSource(const BFloat16* data, int64_t line_step, int64_t k_step, int64_t depth)
      : data_(data), line_step_(line_step), k_step_(k_step), depth_(depth) {}

  void pack(int64_t line, int64_t count, int64_t k, int64_t depth, int width,
            float* out) const override {
    if (is_pairs()) {
      const StridedSource<float> whole(reinterpret_cast<const float*>(data_), line_step_ / 2, 1);
      whole.pack(line, count, k, depth, width, out);
      return;
    }
    for (; count > 0; count -= width, line += width, out += width * depth) {
      const auto here = static_cast<int>(std::min<int64_t>(count, width));
      if (k_step_ == 1) {
        pack_rows(line, here, k, depth, width, out);
      } else {
        pack_columns(line, here, k, depth, width, out);
      }
    }
  }

  Lines in_place() const override {
    if (!is_pairs()) return {};
    return {reinterpret_cast<const float*>(data_), line_step_ / 2, 1};
  }

  // Whether all pairs lie there, each in the place of a float.
  bool is_pairs() const {
    return k_step_ == 1 && depth_ % 2 == 0 && line_step_ % 2 == 0 && line_step_ >= 4 &&
           reinterpret_cast<uintptr_t>(data_) % alignof(float) == 0;
  }

 private:
  void pack_rows(int64_t line, int here, int64_t k, int64_t depth, int width, float* out) const {
    constexpr int64_t kChunk = 64;
    float pairs[kMaxPanel * kChunk];
    const float* rows[kMaxPanel];
    for (int64_t p = 0; p < depth; p += kChunk) {
      const int64_t length = std::min(kChunk, depth - p), element = 2 * (k + p);
      const int64_t there = std::min(2 * length, depth_ - element);
      for (int i = 0; i < here; ++i) {
        float* const row = pairs + i * kChunk;
        row[length - 1] = 0;
        std::memcpy(row, data_ + (line + i) * line_step_ + element,
                    static_cast<size_t>(there) * sizeof(BFloat16));
        rows[i] = row;
      }
      isa_table<GemmKernels<float>>().interleave(rows, here, width, length, out + p * width);
    }
  }

  void pack_columns(int64_t line, int here, int64_t k, int64_t depth, int width, float* out) const {
    for (int64_t p = 0; p < depth; ++p, out += width) {
      const int64_t element = 2 * (k + p);
      const BFloat16* const first = data_ + line * line_step_ + element * k_step_;
      const BFloat16* const second = element + 1 < depth_ ? first + k_step_ : nullptr;
      if (line_step_ == 1 && second != nullptr) {
        for (int i = 0; i < here; ++i) out[i] = pair(first[i], second[i]);
      } else {
        for (int i = 0; i < here; ++i) {
          const int64_t at = i * line_step_;
          out[i] = pair(first[at], second != nullptr ? second[at] : BFloat16());
        }
      }
      std::fill(out + here, out + width, 0.0f);
    }
  }

  static float pair(BFloat16 first, BFloat16 second) {
    const uint32_t low = first.bits, high = second.bits;
    return std::bit_cast<float>(low | high << 16);
  }

  const BFloat16* data_;
  int64_t line_step_, k_step_, depth_;
};

// Null where the processor has no instruction for them.
const GemmKernels<float>* pair_kernels() {
  static const PairKernels& found = isa_table<PairKernels>();
  static const bool use = found.present && machine_multiplies_bfloat16();
  return use ? &found.kernels : nullptr;
}

template <class T, class S>
Status multiply_into(int64_t m, int64_t n, int64_t k, const MatrixView<S>& a,
                     const MatrixView<S>& b, T* c, ParallelFor parallel_for) {
  if constexpr (std::is_same_v<S, BFloat16>) {
    const GemmKernels<float>* const pairs = pair_kernels();
    const PairSource left(a.data, a.row_step, a.column_step, k);
    const PairSource right(b.data, b.column_step, b.row_step, k);
    // To make pairs of what one row meets takes longer than to make floats of it.
    if (pairs != nullptr && (m > 1 || right.is_pairs())) {
      return gemm<T>({m, n, ceil_div(k, 2), left, right, c, n}, parallel_for, *pairs);
    }
  }
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
