#include "millrace/ops/reduce/reduce.h"

#include <algorithm>
#include <bitset>
#include <cstring>

#include "millrace/ops/rounding.h"
#include "millrace/tensor/complex.h"

namespace millrace {

void ReduceDims::add(int64_t size, bool is_reduced) {
  if (size == 1) return;
  if (count_ > 0 && reduced(count_ - 1) == is_reduced) {
    sizes_[count_ - 1] *= size;
    return;
  }
  if (count_ == 0) first_reduced_ = is_reduced;
  sizes_[count_++] = size;
}

void ReduceDims::remove(int i) {
  if (i == 0) first_reduced_ = false;
  int gone = 1;
  if (i > 0 && i + 1 < count_) {
    sizes_[i - 1] *= sizes_[i + 1];
    gone = 2;
  }
  std::copy(sizes_ + i + gone, sizes_ + count_, sizes_ + i);
  count_ -= gone;
}

int ReduceDims::largest_reduced() const {
  int largest = -1;
  for (int i = 0; i < count_; ++i) {
    if (reduced(i) && (largest < 0 || sizes_[i] > sizes_[largest])) largest = i;
  }
  return largest;
}

int64_t ReduceDims::product(int begin, int end) const {
  int64_t n = 1;
  for (int i = begin; i < end; ++i) n *= sizes_[i];
  return n;
}

Result<Shape> read_reduction(const Tensor& axes, const Shape& shape, bool keep_dims,
                             ReduceDims& dims) {
  if (axes.rank() > 1) {
    return invalid_argument("reduction_indices must be at most rank 1, got shape ", axes.shape());
  }
  if (axes.num_elements() > shape.rank()) {
    return invalid_argument(axes.num_elements(), " axes to reduce, but the input has shape ",
                            shape);
  }
  std::bitset<Shape::kMaxRank> reduced;
  for (int64_t i = 0; i < axes.num_elements(); ++i) {
    const auto k = static_cast<size_t>(i);
    const int64_t given =
        axes.dtype() == DType::kInt32 ? int64_t{axes.data<int32_t>()[k]} : axes.data<int64_t>()[k];
    MR_TRY_ASSIGN(const int axis, normalize_axis(given, shape.rank(), "reduction axis"));
    if (reduced[static_cast<size_t>(axis)]) {
      return invalid_argument("reduction axis ", given, " is given twice for shape ", shape);
    }
    reduced[static_cast<size_t>(axis)] = true;
  }
  int64_t kept[Shape::kMaxRank];
  size_t num_kept = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    const bool gone = reduced[static_cast<size_t>(i)];
    dims.add(shape.dim(i), gone);
    if (!gone || keep_dims) kept[num_kept++] = gone ? 1 : shape.dim(i);
  }
  return Shape::make({kept, num_kept});
}

namespace {

// Rows narrower than this are folded several at a time, side by side.
constexpr int64_t kNarrow = 32;
constexpr int64_t kSideBySide = 64;
// Rows that a column's partial result covers.
constexpr int64_t kRowBlock = 128;

// One reduced dimension of n elements between `outer` and `inner` kept ones.
template <class A>
class FoldPass {
 public:
  FoldPass(KernelContext& ctx, const FoldLoops<A>& loops, const FoldSource<A>& x)
      : ctx_(ctx), loops_(loops), x_(x), cost_(x.convert == nullptr ? 0.1 : 0.5) {}

  Status run(int64_t outer, int64_t n, int64_t inner, A* out) {
    return inner == 1 ? fold_rows(outer, n, out) : fold_columns(outer, n, inner, out);
  }

 private:
  const char* at(int64_t i) const {
    return static_cast<const char*>(x_.data) + i * static_cast<int64_t>(x_.element_size);
  }
  const A* direct(int64_t i) const { return static_cast<const A*>(x_.data) + i; }
  // Elements [i, i + n), converted into `buffer` where they have to be.
  const A* load(int64_t i, int64_t n, A* buffer) const {
    if (x_.convert == nullptr) return direct(i);
    x_.convert(at(i), n, buffer);
    return buffer;
  }
  void copy(int64_t i, int64_t n, A* to) const {
    if (x_.convert == nullptr) {
      std::memcpy(static_cast<void*>(to), at(i), static_cast<size_t>(n) * sizeof(A));
    } else {
      x_.convert(at(i), n, to);
    }
  }

  // Folds partial results of shape [outer, blocks, inner].
  Status fold_partial(const Tensor& partial, int64_t outer, int64_t blocks, int64_t inner, A* out) {
    return FoldPass(ctx_, loops_, {.data = partial.raw()}).run(outer, blocks, inner, out);
  }

  Status fold_rows(int64_t rows, int64_t n, A* out) {
    if (n > kFoldBlock) return fold_long_rows(rows, n, out);
    ctx_.parallel_for(rows, cost_ * static_cast<double>(n) + 2, [&](int64_t begin, int64_t end) {
      if (x_.convert == nullptr) {
        loops_.rows(direct(begin * n), end - begin, n, out + begin);
        return;
      }
      A buffer[kFoldBlock];
      const int64_t step = kFoldBlock / n;
      for (int64_t r = begin; r < end; r += step) {
        const int64_t count = std::min(step, end - r);
        loops_.rows(load(r * n, count * n, buffer), count, n, out + r);
      }
    });
    return ok_status();
  }

  Status fold_long_rows(int64_t rows, int64_t n, A* out) {
    const int64_t blocks = ceil_div(n, kFoldBlock);
    MR_TRY_ASSIGN(const Shape shape, Shape::make({{rows, blocks}}));
    MR_TRY_ASSIGN(Tensor partial, ctx_.allocate_temp(dtype_of<A>, shape));
    A* to = static_cast<A*>(partial.mutable_raw());
    ctx_.parallel_for(rows * blocks, cost_ * kFoldBlock, [&](int64_t begin, int64_t end) {
      A buffer[kFoldBlock];
      for (int64_t u = begin; u < end; ++u) {
        const int64_t first = u % blocks * kFoldBlock;
        const int64_t count = std::min(kFoldBlock, n - first);
        loops_.rows(load(u / blocks * n + first, count, buffer), 1, count, to + u);
      }
    });
    return fold_partial(partial, rows, blocks, 1, out);
  }

  Status fold_columns(int64_t outer, int64_t n, int64_t inner, A* out) {
    const int64_t group = inner < kNarrow ? kSideBySide / inner : 1;
    const int64_t row_block = group == 1 ? kRowBlock : kFoldBlock / (group * inner) * group;
    const int64_t blocks = ceil_div(n, row_block);
    const int64_t chunks = ceil_div(inner, kFoldBlock);
    Tensor partial;
    A* to = out;
    if (blocks > 1) {
      MR_TRY_ASSIGN(const Shape shape, Shape::make({{outer, blocks, inner}}));
      MR_TRY_ASSIGN(partial, ctx_.allocate_temp(dtype_of<A>, shape));
      to = static_cast<A*>(partial.mutable_raw());
    }
    const double elements =
        static_cast<double>(std::min(n, row_block) * std::min(inner, kFoldBlock));
    ctx_.parallel_for(outer * blocks * chunks, cost_ * elements + 10,
                      [&](int64_t begin, int64_t end) {
                        for (int64_t u = begin; u < end; ++u) {
                          const int64_t block = u / chunks;  // over outer and blocks
                          const int64_t first_row = block % blocks * row_block;
                          const int64_t first_col = u % chunks * kFoldBlock;
                          const int64_t rows = std::min(row_block, n - first_row);
                          const int64_t cols = std::min(kFoldBlock, inner - first_col);
                          const int64_t from = (block / blocks * n + first_row) * inner + first_col;
                          A* acc = to + block * inner + first_col;
                          if (group > 1 && rows >= 2 * group) {
                            fold_narrow(from, rows, inner, group, acc);
                          } else {
                            fold_wide(from, rows, inner, cols, acc);
                          }
                        }
                      });
    return blocks > 1 ? fold_partial(partial, outer, blocks, inner, out) : ok_status();
  }

  // acc[k] = the fold of column k of `rows` rows, `stride` apart.
  void fold_wide(int64_t from, int64_t rows, int64_t stride, int64_t cols, A* acc) const {
    copy(from, cols, acc);
    if (x_.convert == nullptr) {
      loops_.columns(acc, direct(from + stride), rows - 1, stride, cols);
      return;
    }
    A buffer[kFoldBlock];
    const int64_t step = kFoldBlock / cols;
    for (int64_t r = 1; r < rows; r += step) {
      const int64_t count = std::min(step, rows - r);
      for (int64_t k = 0; k < count; ++k) copy(from + (r + k) * stride, cols, buffer + k * cols);
      loops_.columns(acc, buffer, count, cols, cols);
    }
  }

  // The same for at most kFoldBlock elements in contiguous rows, `group` rows seen as one.
  void fold_narrow(int64_t from, int64_t rows, int64_t inner, int64_t group, A* acc) const {
    A buffer[kFoldBlock];
    const A* x = load(from, rows * inner, buffer);
    const int64_t wide = group * inner;
    const int64_t full = rows / group;
    A side_by_side[kSideBySide];
    std::copy(x, x + wide, side_by_side);
    loops_.columns(side_by_side, x + wide, full - 1, wide, wide);
    loops_.columns(side_by_side, x + full * wide, 1, 0, rows % group * inner);
    std::copy(side_by_side, side_by_side + inner, acc);
    loops_.columns(acc, side_by_side + inner, group - 1, inner, inner);
  }

  KernelContext& ctx_;
  const FoldLoops<A>& loops_;
  FoldSource<A> x_;
  double cost_;  // nanoseconds per element
};

}  // namespace

template <class A>
Status reduce(KernelContext& ctx, FoldOp op, const FoldSource<A>& x, ReduceDims& dims, A* out) {
  const FoldLoops<A>& loops = fold_loops<A>(op);
  FoldSource<A> source = x;
  Tensor previous;
  while (true) {
    const int i = dims.largest_reduced();
    const int64_t outer = dims.product(0, i);
    const int64_t inner = dims.product(i + 1, dims.count());
    FoldPass<A> pass(ctx, loops, source);
    if (dims.num_reduced() == 1) return pass.run(outer, dims.size(i), inner, out);
    MR_TRY_ASSIGN(const Shape shape, Shape::make({{outer, inner}}));
    MR_TRY_ASSIGN(Tensor partial, ctx.allocate_temp(dtype_of<A>, shape));
    MR_TRY(pass.run(outer, dims.size(i), inner, static_cast<A*>(partial.mutable_raw())));
    previous = std::move(partial);
    source = {.data = previous.raw()};
    dims.remove(i);
  }
}

template Status reduce(KernelContext&, FoldOp, const FoldSource<float>&, ReduceDims&, float*);
template Status reduce(KernelContext&, FoldOp, const FoldSource<double>&, ReduceDims&, double*);
template Status reduce(KernelContext&, FoldOp, const FoldSource<int64_t>&, ReduceDims&, int64_t*);
template Status reduce(KernelContext&, FoldOp, const FoldSource<Complex64>&, ReduceDims&,
                       Complex64*);
template Status reduce(KernelContext&, FoldOp, const FoldSource<Complex128>&, ReduceDims&,
                       Complex128*);

}  // namespace millrace
