// MatrixDiag, MatrixDiagPart and MatrixSetDiag: matrices from their diagonals and back. The newer
// forms (V2, V3) take a range k = [lower, upper] of diagonals, 0 the main one, those above it
// positive. Several diagonals lie in the rows of a matrix, upper first, each at the left or right
// end of its row.

#include <algorithm>
#include <optional>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/strided_copy.h"
#include "millrace/ops/element.h"

namespace millrace {
namespace {

struct Range {
  int64_t lower = 0, upper = 0;
  int64_t count() const { return upper - lower + 1; }

  static Result<Range> make(std::span<const int64_t> k) {
    if (k.empty() || k.size() > 2) {
      return invalid_argument("k must have one or two elements, got ", k.size());
    }
    const Range range{k.front(), k.back()};
    if (range.lower <= range.upper) return range;
    return invalid_argument("lower_diag_index must not be larger than upper_diag_index: ",
                            range.lower, " > ", range.upper);
  }
  Status check(int64_t rows, int64_t cols) const {
    for (const int64_t d : {lower, upper}) {
      if ((d > -rows && d < cols) || d == 0) continue;
      return invalid_argument("diagonal ", d, " is out of bound: it must be between ", -rows,
                              " and ", cols);
    }
    return ok_status();
  }
  int64_t longest(int64_t rows, int64_t cols) const {
    return std::min(rows + std::min<int64_t>(upper, 0), cols - std::max<int64_t>(lower, 0));
  }
};

// At which end of their rows diagonals above and below the main one lie.
struct Align {
  bool left_above = true, left_below = true;
};

Result<Align> read_align(const AttrMap& attrs) {
  const AttrValue* value = attrs.find("align");
  if (value == nullptr) return Align();
  MR_TRY_ASSIGN(std::string name, read_attr<std::string>(attrs, "align"));
  const std::string_view text = name;
  return Align{text.starts_with("LEFT"), text.ends_with("LEFT")};
}

// Where the diagonals of a batch of matrices lie.
struct Layout {
  int64_t batch, rows, cols;
  Range range;
  int64_t longest;
  Align align;

  int64_t length(int64_t d) const {
    return std::min(rows + std::min<int64_t>(d, 0), cols - std::max<int64_t>(d, 0));
  }
  int64_t offset(int64_t d) const {
    const bool left = (d >= 0 && align.left_above) || (d <= 0 && align.left_below);
    return left ? 0 : longest - length(d);
  }
  // Calls f(in_matrices, matrix_step, in_diagonals, n) for each diagonal: the places of its first
  // element on both sides; elements of the diagonals lie next to each other.
  template <class F>
  void for_each(int64_t begin, int64_t end, F f) const {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / range.count(), row = i % range.count(), d = range.upper - row;
      const int64_t first =
          std::max<int64_t>(-d, 0) * cols + std::max<int64_t>(d, 0) + b * rows * cols;
      f(first, cols + 1, i * longest + offset(d), std::max<int64_t>(length(d), 0));
    }
  }
  int64_t diagonals() const { return batch * range.count(); }
};

template <bool kToMatrices>
void copy_diagonals(const KernelContext& ctx, const Layout& layout, const Tensor& from,
                    Tensor& to) {
  with_element(from.dtype(), [&]<class T>() {
    const T* source = static_cast<const T*>(from.raw());
    T* target = static_cast<T*>(to.mutable_raw());
    const double cost = 2 * copy_cost(from.dtype()) * static_cast<double>(layout.longest) + 5;
    ctx.parallel_for(layout.diagonals(), cost, [&](int64_t begin, int64_t end) {
      layout.for_each(begin, end, [&](int64_t m, int64_t step, int64_t d, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
          if constexpr (kToMatrices) {
            target[m + i * step] = source[d + i];
          } else {
            target[d + i] = source[m + i * step];
          }
        }
      });
    });
  });
}

// All elements become `padding` where valid, else zero.
Status fill_with(const KernelContext& ctx, const Tensor& padding, Tensor& out) {
  if (padding.valid()) {
    fill_tensor(ctx, padding, out);
  } else if (is_plain(out.dtype())) {
    MR_TRY_ASSIGN(const Tensor zero, Tensor::zeros(out.dtype(), Shape()));
    fill_tensor(ctx, zero, out);
  }
  return ok_status();
}

// The range of diagonals of a node whose k is input i (negative: the main one alone); nothing when
// not known.
Result<std::optional<Range>> known_range(const ShapeContext& c, int i) {
  if (i < 0) return std::optional<Range>(Range());
  MR_TRY(c.with_rank_at_most(i, 1).status());
  const std::optional<std::vector<int64_t>> k = c.input_vector(i);
  if (!k) return std::optional<Range>();
  MR_TRY_ASSIGN(const Range range, Range::make(*k));
  return std::optional<Range>(range);
}

Result<Range> range_input(const KernelContext& ctx, int i) {
  if (i < 0) return Range();
  MR_TRY_ASSIGN(const std::vector<int64_t> k, ctx.int_vector_input(i));
  return Range::make(k);
}

// The first dimensions of `shape` but for `last`.
std::vector<int64_t> without_last(std::span<const int64_t> shape, int last) {
  return {shape.begin(), shape.end() - last};
}

// MatrixDiagPart.

// The shape of the diagonals of matrices of shape `in`.
Result<PartialShape> diagonals_shape(const PartialShape& in, const Range& range) {
  const int64_t rows = in.dim(in.rank() - 2), cols = in.dim(in.rank() - 1);
  std::vector<int64_t> dims = without_last(in.dims(), 2);
  if (range.count() > 1) dims.push_back(range.count());
  if (rows >= 0 && cols >= 0) {
    MR_TRY(range.check(rows, cols));
    dims.push_back(std::max<int64_t>(range.longest(rows, cols), 0));
  } else {
    dims.push_back(PartialShape::kUnknownDim);
  }
  return PartialShape::make(dims);
}

template <bool kRange>
Status part_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape in, c.with_rank_at_least(0, 2));
  if (kRange) MR_TRY(c.with_rank(2, 0).status());
  MR_TRY_ASSIGN(const std::optional<Range> range, known_range(c, kRange ? 1 : -1));
  if (!in.rank_known() || !range) return ok_status();
  MR_TRY_ASSIGN(PartialShape out, diagonals_shape(in, *range));
  c.set_output(0, std::move(out));
  return ok_status();
}

Result<Layout> make_layout(const Shape& matrices, const Range& range, const Align& align) {
  Layout layout{.batch = 1,
                .rows = matrices.dim(matrices.rank() - 2),
                .cols = matrices.dim(matrices.rank() - 1),
                .range = range,
                .longest = 0,
                .align = align};
  MR_TRY(range.check(layout.rows, layout.cols));
  layout.longest = range.longest(layout.rows, layout.cols);
  for (int i = 0; i + 2 < matrices.rank(); ++i) layout.batch *= matrices.dim(i);
  return layout;
}

template <bool kRange>
class DiagPart : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const Align align, read_align(node.attrs));
    return std::make_unique<DiagPart>(align);
  }
  explicit DiagPart(const Align& align) : align_(align) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor& in = ctx.input(0);
    if (in.rank() < 2) {
      return invalid_argument("input must be at least 2-dim, received shape: ", in.shape());
    }
    if (kRange) MR_TRY(expect_rank(ctx, 2, 0));
    MR_TRY_ASSIGN(const Range range, range_input(ctx, kRange ? 1 : -1));
    MR_TRY_ASSIGN(const Layout layout, make_layout(in.shape(), range, align_));
    MR_TRY_ASSIGN(const PartialShape known, diagonals_shape(in.shape(), range));
    MR_TRY_ASSIGN(const Shape shape, known.to_shape());
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (shape.num_elements() == 0) return ok_status();
    if (range.count() > 1) MR_TRY(fill_with(ctx, ctx.input(2), *out));
    copy_diagonals<false>(ctx, layout, in, *out);
    return ok_status();
  }

 private:
  const Align align_;
};

// MatrixDiag.

struct MatrixSize {
  int64_t rows = -1, cols = -1;
};

// The size of the smallest matrix that has these diagonals, or of the one that is asked for.
Result<MatrixSize> matrix_size(const Range& range, int64_t longest, MatrixSize asked) {
  int64_t rows, cols;
  if (__builtin_sub_overflow(longest, std::min<int64_t>(range.upper, 0), &rows) ||
      __builtin_add_overflow(longest, std::max<int64_t>(range.lower, 0), &cols)) {
    return invalid_argument("diagonals of ", longest, " elements make too large a matrix");
  }
  if (asked.rows < 0 && asked.cols < 0) {
    asked.rows = asked.cols = std::max(rows, cols);
  } else if (asked.rows < 0) {
    asked.rows = rows;
  } else if (asked.cols < 0) {
    asked.cols = cols;
  }
  if (asked.rows < rows) return invalid_argument("The number of rows is too small.");
  if (asked.cols < cols) return invalid_argument("The number of columns is too small.");
  if (asked.rows != rows && asked.cols != cols) {
    return invalid_argument(
        "The number of rows or columns is not consistent with the specified d_lower, d_upper, and "
        "diagonal.");
  }
  MR_TRY(range.check(asked.rows, asked.cols));
  return asked;
}

Status check_count(const PartialShape& diagonal, const Range& range) {
  if (range.count() == 1) return ok_status();
  if (diagonal.rank() < 2) {
    return invalid_argument("several diagonals must have rank 2 or more, got ", diagonal);
  }
  const int64_t given = diagonal.dim(diagonal.rank() - 2);
  if (given < 0 || given == range.count()) return ok_status();
  return invalid_argument(
      "The number of diagonals provided in the input does not match the lower_diag_index and "
      "upper_diag_index range: ",
      given, ", expected ", range.count());
}

template <bool kRange>
Status diag_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape in, c.with_rank_at_least(0, 1));
  MatrixSize asked;
  bool known = true;
  if (kRange) {
    for (int i = 2; i < 5; ++i) MR_TRY(c.with_rank(i, 0).status());
    const std::optional<int64_t> rows = c.input_scalar(2), cols = c.input_scalar(3);
    known = rows && cols;
    if (known) asked = {*rows, *cols};
  }
  MR_TRY_ASSIGN(const std::optional<Range> range, known_range(c, kRange ? 1 : -1));
  if (!in.rank_known() || !range) return ok_status();
  MR_TRY(check_count(in, *range));
  const int64_t longest = in.dim(in.rank() - 1);
  MatrixSize size;
  if (known && longest >= 0) {
    MR_TRY_ASSIGN(size, matrix_size(*range, longest, asked));
  }
  std::vector<int64_t> dims = without_last(in.dims(), range->count() > 1 ? 2 : 1);
  dims.insert(dims.end(), {size.rows, size.cols});
  MR_TRY_ASSIGN(PartialShape out, PartialShape::make(dims));
  c.set_output(0, std::move(out));
  return ok_status();
}

template <bool kRange>
class MatrixDiag : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const Align align, read_align(node.attrs));
    return std::make_unique<MatrixDiag>(align);
  }
  explicit MatrixDiag(const Align& align) : align_(align) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor& in = ctx.input(0);
    if (in.rank() < 1) {
      return invalid_argument("input must be at least 1-dim, received shape: ", in.shape());
    }
    MatrixSize size;
    if (kRange) {
      for (int i = 2; i < 5; ++i) MR_TRY(expect_rank(ctx, i, 0));
      MR_TRY_ASSIGN(size.rows, ctx.int_scalar_input(2));
      MR_TRY_ASSIGN(size.cols, ctx.int_scalar_input(3));
    }
    MR_TRY_ASSIGN(const Range range, range_input(ctx, kRange ? 1 : -1));
    MR_TRY(check_count(in.shape(), range));
    MR_TRY_ASSIGN(size, matrix_size(range, in.dim(in.rank() - 1), size));
    std::vector<int64_t> dims = without_last(in.shape().dims(), range.count() > 1 ? 2 : 1);
    dims.insert(dims.end(), {size.rows, size.cols});
    MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (shape.num_elements() == 0) return ok_status();
    MR_TRY(fill_with(ctx, kRange ? ctx.input(4) : Tensor(), *out));
    MR_TRY_ASSIGN(const Layout layout, make_layout(shape, range, align_));
    copy_diagonals<true>(ctx, layout, in, *out);
    return ok_status();
  }

 private:
  const Align align_;
};

// MatrixSetDiag.

Status check_diagonals(const PartialShape& in, const PartialShape& diagonal, const Range& range) {
  if (!in.rank_known()) return ok_status();
  MR_TRY_ASSIGN(const PartialShape expected, diagonals_shape(in, range));
  if (expected.compatible(diagonal)) return ok_status();
  return invalid_argument("diagonal must have shape ", expected, ", but received input shape: ", in,
                          " and diagonal shape: ", diagonal);
}

template <bool kRange>
Status set_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape in, c.with_rank_at_least(0, 2));
  MR_TRY(c.with_rank_at_least(1, 1).status());
  MR_TRY_ASSIGN(const std::optional<Range> range, known_range(c, kRange ? 2 : -1));
  if (range) MR_TRY(check_diagonals(in, c.input(1), *range));
  c.set_output(0, in);
  return ok_status();
}

template <bool kRange>
class SetDiag : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const Align align, read_align(node.attrs));
    return std::make_unique<SetDiag>(align);
  }
  explicit SetDiag(const Align& align) : align_(align) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor in = ctx.input(0);
    const Tensor& diagonal = ctx.input(1);
    if (in.rank() < 2) {
      return invalid_argument("input must be at least 2-dim, received shape: ", in.shape());
    }
    MR_TRY_ASSIGN(const Range range, range_input(ctx, kRange ? 2 : -1));
    MR_TRY(check_diagonals(in.shape(), diagonal.shape(), range));
    MR_TRY_ASSIGN(const Layout layout, make_layout(in.shape(), range, align_));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, in.shape()));
    if (in.num_elements() == 0) return ok_status();
    StridedCopy copy;
    copy.add_dims(in.shape());
    copy.run(ctx, in, 0, *out, 0);
    copy_diagonals<true>(ctx, layout, diagonal, *out);
    return ok_status();
  }

 private:
  const Align align_;
};

// Gradients. All forms use the newest ops.

Expr sum_all(Expr x) {
  if (!x.valid()) return x;
  OpBuilder& b = *x.builder();
  return sum(x, range(int32_scalar(b, 0), rank(x), int32_scalar(b, 1)));
}

AttrMap align_attr(const GradientContext& g) {
  const Result<std::string> align = g.attr<std::string>("align");
  return {{"align", align.ok() ? *align : std::string("LEFT_LEFT")}};
}

Expr diagonals_of(const GradientContext& g, Expr x, Expr k) {
  return call("MatrixDiagPartV3", {x, k, constant_like(x, 0)}, align_attr(g));
}
Expr with_diagonals(const GradientContext& g, Expr x, Expr diagonals, Expr k) {
  return call("MatrixSetDiagV3", {x, diagonals, k}, align_attr(g));
}

template <bool kRange>
Status part_grad(GradientContext& g) {
  const Expr k = kRange ? g.input(1) : int32_scalar(g.builder(), 0), dy = g.gradient();
  const Expr dx = with_diagonals(g, zeros_like(g.input(0)), dy, k);
  g.set(0, dx);
  // What is not of the matrix is padding.
  if (kRange) g.set(2, sum_all(dy) - sum_all(dx));
  return ok_status();
}

template <bool kRange>
Status diag_grad(GradientContext& g) {
  const Expr k = kRange ? g.input(1) : int32_scalar(g.builder(), 0), dy = g.gradient();
  const Expr dx = diagonals_of(g, dy, k);
  g.set(0, dx);
  if (kRange) g.set(4, sum_all(dy) - sum_all(dx));
  return ok_status();
}

template <bool kRange>
Status set_grad(GradientContext& g) {
  const Expr k = kRange ? g.input(2) : int32_scalar(g.builder(), 0), dy = g.gradient();
  g.set(0, with_diagonals(g, dy, zeros_like(g.input(1)), k));
  g.set(1, diagonals_of(g, dy, k));
  return ok_status();
}

template <bool kRange>
void register_form(Registry& registry, const std::string& suffix) {
  const OpSpec::Arg k = {"k", "host(int32)", "A diagonal, or the lowest and the uppermost."};
  std::vector<OpSpec::Attr> attrs;
  if (suffix == "V3") {
    attrs.push_back({"align",
                     "string = 'RIGHT_LEFT' in "
                     "{'LEFT_RIGHT','RIGHT_LEFT','LEFT_LEFT','RIGHT_RIGHT'}",
                     "Ends at which diagonals above and below the main one lie."});
  }
  const auto add = [&](const char* name, const char* doc, std::vector<OpSpec::Arg> inputs,
                       const char* output, ShapeRule shape, GradientRule gradient,
                       KernelFactory kernel) {
    OpSpec spec = {.name = name + suffix,
                   .doc = doc,
                   .inputs = inputs,
                   .outputs = {{output, "T"}},
                   .types = {{"T", {}}},
                   .attrs = attrs,
                   .traits = {.cost = 0.5F},
                   .shape = shape,
                   .gradient = gradient};
    registry.add(spec);
    registry.kernel({.op = spec.name, .factory = kernel});
    if (!suffix.empty()) return;
    spec.deprecation = str_cat("Use ", name, " instead.");
    spec.name = str_cat("Batch", name);
    spec.deprecated_since = 14;
    registry.add(spec);
    registry.kernel({.op = spec.name, .factory = kernel});
  };
  std::vector<OpSpec::Arg> diag = {{"diagonal", "T"}}, part = {{"input", "T"}},
                           set = {{"input", "T"}, {"diagonal", "T"}};
  if (kRange) {
    const OpSpec::Arg padding = {"padding_value", "T", "For what is on no diagonal."};
    diag.insert(diag.end(), {k,
                             {"num_rows", "host(int32)", "-1: as few as will do."},
                             {"num_cols", "host(int32)"},
                             padding});
    part.insert(part.end(), {k, padding});
    set.push_back(k);
  }
  add("MatrixDiag", "Matrices with these diagonals.", std::move(diag), "output", diag_shape<kRange>,
      diag_grad<kRange>, MatrixDiag<kRange>::make);
  add("MatrixDiagPart", "The diagonals of matrices.", std::move(part), "diagonal",
      part_shape<kRange>, part_grad<kRange>, DiagPart<kRange>::make);
  add("MatrixSetDiag", "Matrices with other diagonals.", std::move(set), "output",
      set_shape<kRange>, set_grad<kRange>, SetDiag<kRange>::make);
}

}  // namespace

void register_matrix_diag(Registry& registry) {
  register_form<false>(registry, "");
  register_form<true>(registry, "V2");
  register_form<true>(registry, "V3");
}

}  // namespace millrace
