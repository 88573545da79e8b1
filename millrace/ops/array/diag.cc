// Diag, DiagPart and MatrixBandPart.

#include <algorithm>
#include <cstring>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/strided_copy.h"
#include "millrace/ops/element.h"

namespace millrace {
namespace {

constexpr TypeSet kDiagTypes = kFloating | kComplex | TypeSet{DType::kInt32, DType::kInt64};

// A tensor of shape s becomes one of shape s + s that is zero but where both halves of an index
// agree.
Status diag_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape in, c.with_rank_at_least(0, 1));
  if (!in.rank_known()) return ok_status();
  std::vector<int64_t> dims(in.dims().begin(), in.dims().end());
  dims.insert(dims.end(), in.dims().begin(), in.dims().end());
  MR_TRY_ASSIGN(PartialShape out, PartialShape::make(dims));
  c.set_output(0, std::move(out));
  return ok_status();
}

// The first half of `in`, which must be the second one too.
Result<PartialShape> half_of(const PartialShape& in) {
  if (in.rank() == 0 || in.rank() % 2 != 0) {
    return invalid_argument("input must have an even rank of 2 or more, got ", in);
  }
  const size_t half = static_cast<size_t>(in.rank()) / 2;
  MR_TRY_ASSIGN(PartialShape first, PartialShape::make(in.dims().first(half)));
  MR_TRY_ASSIGN(const PartialShape second, PartialShape::make(in.dims().last(half)));
  if (!first.compatible(second)) {
    return invalid_argument("both halves of the shape must be the same, got ", in);
  }
  return first.merge(second);
}

Status diag_part_shape(ShapeContext& c) {
  if (!c.input(0).rank_known()) return ok_status();
  MR_TRY_ASSIGN(PartialShape out, half_of(c.input(0)));
  c.set_output(0, std::move(out));
  return ok_status();
}

Status diag_grad(GradientContext& g) {
  g.set(0, call("DiagPart", {g.gradient()}));
  return ok_status();
}
Status diag_part_grad(GradientContext& g) {
  g.set(0, call("Diag", {g.gradient()}));
  return ok_status();
}

Status diag_cpu(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  if (in.rank() == 0) return invalid_argument("Input must be at least rank 1, got a scalar");
  MR_TRY_ASSIGN(const Shape shape, in.shape().concat(in.shape()));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
  if (in.num_elements() == 0) return ok_status();
  zero_tensor(ctx, *out);
  StridedCopy copy;
  copy.add_dim(in.num_elements(), 1, in.num_elements() + 1);
  copy.run(ctx, in, 0, *out, 0);
  return ok_status();
}

Status diag_part_cpu(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  MR_TRY_ASSIGN(const PartialShape half, half_of(in.shape()));
  MR_TRY_ASSIGN(const Shape shape, half.to_shape());
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
  if (shape.num_elements() == 0) return ok_status();
  StridedCopy copy;
  copy.add_dim(shape.num_elements(), shape.num_elements() + 1, 1);
  copy.run(ctx, in, 0, *out, 0);
  return ok_status();
}

// MatrixBandPart.

Status check_band(const char* what, int64_t value, int64_t size) {
  if (value <= size) return ok_status();
  return invalid_argument(what, " must be negative or less or equal to the size of the matrix (",
                          size, ") got: ", value);
}

Status band_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape in, c.with_rank_at_least(0, 2));
  for (int i : {1, 2}) {
    MR_TRY(c.with_rank(i, 0).status());
    const std::optional<int64_t> value = c.input_scalar(i);
    const int64_t size = in.rank_known() ? in.dim(in.rank() - 3 + i) : -1;
    if (value && size >= 0) MR_TRY(check_band(i == 1 ? "num_lower" : "num_upper", *value, size));
  }
  c.set_output(0, std::move(in));
  return ok_status();
}

Status band_grad(GradientContext& g) {
  g.set(0, call("MatrixBandPart", {g.gradient(), g.input(1), g.input(2)}));
  return ok_status();
}

Status band_cpu(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  if (in.rank() < 2) {
    return invalid_argument("input must be at least 2-dim, received shape: ", in.shape());
  }
  MR_TRY(expect_rank(ctx, 1, 0));
  MR_TRY(expect_rank(ctx, 2, 0));
  const int64_t rows = in.dim(in.rank() - 2), cols = in.dim(in.rank() - 1);
  MR_TRY_ASSIGN(int64_t lower, ctx.int_scalar_input(1));
  MR_TRY_ASSIGN(int64_t upper, ctx.int_scalar_input(2));
  MR_TRY(check_band("num_lower", lower, rows));
  MR_TRY(check_band("num_upper", upper, cols));
  if (lower < 0) lower = rows;
  if (upper < 0) upper = cols;
  const Tensor held = in;
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, held.shape()));
  if (held.num_elements() == 0) return ok_status();
  with_element(held.dtype(), [&]<class T>() {
    const T* from = static_cast<const T*>(held.raw());
    T* to = static_cast<T*>(out->mutable_raw());
    const double cost = copy_cost(held.dtype()) * static_cast<double>(cols) + 5;
    ctx.parallel_for(held.num_elements() / cols, cost, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t row = r % rows;
        const int64_t first = std::clamp<int64_t>(row - lower, 0, cols);
        const int64_t last = std::clamp<int64_t>(row + upper + 1, first, cols);
        T* target = to + r * cols;
        std::fill(target, target + first, T());
        std::copy(from + r * cols + first, from + r * cols + last, target + first);
        std::fill(target + last, target + cols, T());
      }
    });
  });
  return ok_status();
}

}  // namespace

void register_diag(Registry& registry) {
  registry.add({.name = "Diag",
                .doc = "A tensor with twice the dimensions and the input on its diagonal.",
                .inputs = {{"diagonal", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kDiagTypes}},
                .traits = {.cost = 0.5F},
                .shape = diag_shape,
                .gradient = diag_grad});
  registry.add({.name = "DiagPart",
                .doc = "The elements whose index is the same in both halves of the dimensions.",
                .inputs = {{"input", "T"}},
                .outputs = {{"diagonal", "T"}},
                .types = {{"T", kDiagTypes}},
                .traits = {.cost = 0.5F},
                .shape = diag_part_shape,
                .gradient = diag_part_grad});
  OpSpec band = {.name = "MatrixBandPart",
                 .doc = "Matrices with zeros outside a band around the diagonal.",
                 .inputs = {{"input", "T"},
                            {"num_lower", "host(Tindex)", "Diagonals below; negative: all."},
                            {"num_upper", "host(Tindex)", "Diagonals above; negative: all."}},
                 .outputs = {{"band", "T"}},
                 .types = {{"T", {}}, {"Tindex", kIndexTypes, DType::kInt64}},
                 .traits = {.cost = 0.5F},
                 .shape = band_shape,
                 .gradient = band_grad};
  registry.add(band);
  // Its older name knows one type of index.
  band.name = "BatchMatrixBandPart";
  band.inputs[1].type = band.inputs[2].type = "host(int64)";
  band.types.pop_back();
  band.deprecated_since = 14;
  band.deprecation = "Use MatrixBandPart instead.";
  registry.add(band);
  registry.kernel("Diag", DeviceKind::kCpu, diag_cpu);
  registry.kernel("DiagPart", DeviceKind::kCpu, diag_part_cpu);
  registry.kernel("MatrixBandPart", DeviceKind::kCpu, band_cpu);
  registry.kernel("BatchMatrixBandPart", DeviceKind::kCpu, band_cpu);
}

}  // namespace millrace
