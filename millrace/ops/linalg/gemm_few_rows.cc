#include "millrace/ops/linalg/gemm_few_rows.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "millrace/ops/array/transpose_blocks.h"
#include "millrace/ops/linalg/gemm_sizes.h"
#include "millrace/ops/linalg/scratch.h"
#include "millrace/ops/rounding.h"

namespace millrace {
namespace {

// A matrix of so many columns or more is multiplied with so few rows as it lies in memory, so many
// of its rows at a time; they are fetched so many strips ahead.
constexpr int64_t kFewRows = 56;
constexpr int64_t kWideColumns = 256;
constexpr int64_t kStripDepth = 32;
constexpr int64_t kStripsAhead = 4;
// So is a left matrix whose rows lie side by side as well, as for the gradient of a filter: both
// are read once, where they lie, for a result of up to so many elements and lines, if sums are not
// short. But tiles go on for longer than strips: where both have many lines and the larger one has
// no more bytes than this, they read it where it lies as quickly.
constexpr int64_t kSumsAtHand = int64_t{1} << 18;
constexpr int64_t kDepthAtHand = 128;
constexpr int64_t kTilesAtHand = int64_t{128} << 10;
constexpr int64_t kLinesAtHand = 1024;
constexpr int64_t kLeastLines = 64;
constexpr double kStripFlopsPerNs = 100;
// Columns that are contiguous, where they are so long; blocks of them stay in the first-level cache
// for all rows. Sums stop at a whole number of vectors.
constexpr int64_t kDotDepth = 256;
constexpr int64_t kDotBlock = 1024;
constexpr int64_t kDotStep = 16;
constexpr int kMaxLanes = 16;

}  // namespace

template <class T>
FewRows<T>::FewRows(const GemmProblem<T>& problem, const GemmKernels<T>& kernels, bool turned)
    : problem_(problem),
      kernels_(kernels),
      turned_(turned),
      left_(problem.a.in_place()),
      right_(problem.b.in_place()) {
  if (problem.row_offsets != nullptr || right_.data == nullptr) return;
  if (right_.line_step == 1) {
    const bool tiles_at_hand =
        (turned || problem.m > kFewRows) &&
        problem.n * problem.k * static_cast<int64_t>(sizeof(T)) <= kTilesAtHand;
    const bool sums_at_hand = left_.line_step == 1 && !tiles_at_hand && problem.m <= problem.n &&
                              problem.m * problem.n <= kSumsAtHand && problem.n <= kLinesAtHand &&
                              problem.n >= kLeastLines && problem.k >= kLeastLines;
    const bool few_rows = problem.m <= kFewRows && problem.n >= kWideColumns && !turned_;
    strips_ = kernels.strip_rows > 0 && (few_rows || sums_at_hand);
    if (!strips_) return;
    tall_ = static_cast<int>(ceil_div(problem.m, ceil_div(problem.m, kernels.strip_rows)));
    unit_ = kernels.strip_lanes(tall_);
    depth_ = ceil_div(problem.k, ceil_div(problem.k, few_rows ? kStripDepth : kDepthAtHand));
  } else if (right_.k_step == 1 && problem.k >= kDotDepth && problem.m <= kFewRows && !turned_) {
    dots_ = true;
    tall_ = static_cast<int>(ceil_div(problem.m, ceil_div(problem.m, kernels.dot_rows)));
    unit_ = kernels.dot_columns;
    depth_ = round_up(ceil_div(problem.k, ceil_div(problem.k, kDotBlock)), kDotStep);
  }
}

template <class T>
Status FewRows<T>::run(ParallelFor parallel_for) const {
  if (reads_left_in_place()) {
    return multiply({left_.data, left_.line_step, left_.k_step}, parallel_for);
  }
  Scratch<T> packed(problem_.m * problem_.k);
  MR_TRY(packed.status());
  pack_left(packed.data(), parallel_for);
  return multiply({packed.data(), dots_ ? problem_.k : 1, dots_ ? 1 : problem_.m}, parallel_for);
}

template <class T>
bool FewRows<T>::reads_left_in_place() const {
  if (left_.data == nullptr) return false;
  if (dots_) return left_.k_step == 1;
  return left_.line_step == 1 || (left_.k_step == 1 && left_.line_step % kFarElements<T> != 0);
}

template <class T>
void FewRows<T>::pack_left(T* out, ParallelFor parallel_for) const {
  const int64_t depth = std::max(depth_, kDepth);
  const int64_t units = dots_ ? problem_.m : ceil_div(problem_.k, depth);
  const int64_t elements = problem_.m * problem_.k;
  parallel_for(units, static_cast<double>(elements / units) * 0.5, [&](int64_t begin, int64_t end) {
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

template <class T>
Status FewRows<T>::multiply(const GemmRows<T>& left, ParallelFor parallel_for) const {
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

template <class T>
bool FewRows<T>::multiply_strips(const GemmRows<T>& left, int64_t from, int64_t to) const {
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
      write_turned(sums, j, wide);
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

template <class T>
void FewRows<T>::write_turned(const T* sums, int64_t column, int64_t wide) const {
  T* const c = problem_.c + column * problem_.ldc;
  if (!problem_.accumulate) {
    static const TransposeBlocks& blocks = isa_table<TransposeBlocks>();
    blocks.run[std::countr_zero(sizeof(T))]({sums, unit_, c, problem_.ldc, problem_.m, wide},
                                            /*around_cache=*/false);
    return;
  }
  for (int64_t q = 0; q < wide; ++q) {
    for (int64_t i = 0; i < problem_.m; ++i) c[q * problem_.ldc + i] += sums[i * unit_ + q];
  }
}

template <class T>
const T* FewRows<T>::ahead_of(int64_t from, int64_t to, int64_t k, int64_t j) const {
  int64_t next = j + kStripsAhead * unit_;
  if (next >= to) {
    next -= round_up(to - from, unit_);
    k += depth_;
  }
  if (next + unit_ > to || next < from || k + depth_ > problem_.k) return nullptr;
  return right_.data + k * right_.k_step + next;
}

template <class T>
void FewRows<T>::multiply_strip(const GemmRows<T>& left, int64_t k, int64_t column, int64_t wide,
                                const T* ahead, T* sums) const {
  const int64_t depth = std::min(depth_, problem_.k - k);
  const int64_t whole = wide / kernels_.lanes * kernels_.lanes;
  const T* const right = right_.data + k * right_.k_step + column;
  // Columns that are no whole vector.
  T panel[std::max(kStripDepth, kDepthAtHand) * kMaxLanes];
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

template <class T>
void FewRows<T>::multiply_dots(const GemmRows<T>& left, int64_t from, int64_t to) const {
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

template <class T>
void FewRows<T>::multiply_dots(const GemmRows<T>& left, int64_t k, int64_t column, int64_t wide,
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

template class FewRows<float>;
template class FewRows<double>;
template class FewRows<uint32_t>;
template class FewRows<uint64_t>;

}  // namespace millrace
