#include "millrace/ops/reduce/linear_recurrence.h"

#include <algorithm>
#include <memory>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/reduce/scan.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {

Expr linear_recurrence(Expr a, Expr b, Expr axis, bool reverse, bool shifted) {
  return call("LinearRecurrence", {a, b, axis}, {{"reverse", reverse}, {"shifted", shifted}});
}

Expr previous_element(Expr x, Expr axis, bool reverse) {
  if (!x.valid()) return x;
  OpBuilder& builder = *x.builder();
  const Expr zero = int32_scalar(builder, 0), one = int32_scalar(builder, 1);
  const Expr shape = shape_of(x), dims = size_of(shape);
  const Expr at =
      call("FloorMod", {cast(reshape(axis, int32_vector(builder, {})), DType::kInt32), dims});
  const Expr along = call("OneHot", {at, dims, one, zero}), none = zeros_like(along);
  const Expr before = reverse ? none : along, after = reverse ? along : none;
  const Expr padded =
      call("Pad", {x, call("Pack", std::vector<Expr>{before, after}, {{"axis", 1}})});
  return call("Slice", {padded, after, shape});
}

namespace {

Status recurrence_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, c.input(0).merge(c.input(1)));
  const PartialShape& axis_shape = c.input(2);
  if (axis_shape.rank_known() && axis_shape.num_elements() >= 0 && axis_shape.num_elements() != 1) {
    return invalid_argument("axis must be a scalar, got shape ", axis_shape);
  }
  const std::optional<int64_t> axis = c.input_scalar(2);
  if (axis && shape.rank_known()) MR_TRY(normalize_axis(*axis, shape.rank()).status());
  c.set_output(0, std::move(shape));
  return ok_status();
}

// What y_i comes back with, g_i, goes on to y_{i-1} by the same factor: the recurrence backwards.
// Then b_i gets g_i, and a factor the product of the y before it and the g behind it.
Status recurrence_grad(GradientContext& g) {
  MR_TRY_ASSIGN(const bool reverse, g.attr<bool>("reverse"));
  MR_TRY_ASSIGN(const bool shifted, g.attr<bool>("shifted"));
  Expr a = g.input(0), y = g.output(0);
  if (kComplex.contains(a.dtype())) {
    a = call("Conj", {a});
    y = call("Conj", {y});
  }
  const Expr axis = g.input(2);
  const Expr db = linear_recurrence(a, g.gradient(), axis, !reverse, !shifted);
  g.set(0, shifted ? y * previous_element(db, axis, !reverse)
                   : db * previous_element(y, axis, reverse));
  g.set(1, db);
  return ok_status();
}

// n elements that lie `step` apart (negative: backwards) in each of `cols` columns.
template <class T>
void recur(const T* a, const T* b, int64_t n, int64_t step, int64_t cols, bool shifted, T* y) {
  using R = ComputeType<T>;
  R running[ScanGeometry::kColumns];
  std::fill_n(running, cols, R(0));
  for (int64_t r = 0; r < n; ++r, a += step, b += step, y += step) {
    const T* const factor = shifted && r > 0 ? a - step : a;
    for (int64_t k = 0; k < cols; ++k) {
      // There is nothing before the first element, not even a factor.
      if (r > 0) running[k] *= static_cast<R>(factor[k]);
      running[k] += static_cast<R>(b[k]);
      y[k] = static_cast<T>(running[k]);
    }
  }
}

class LinearRecurrence final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool reverse, node.attr<bool>("reverse"));
    MR_TRY_ASSIGN(const bool shifted, node.attr<bool>("shifted"));
    return std::unique_ptr<Kernel>(new LinearRecurrence(reverse, shifted));
  }
  LinearRecurrence(bool reverse, bool shifted) : reverse_(reverse), shifted_(shifted) {}

  Status compute(KernelContext& ctx) const override {
    const Shape& shape = ctx.input(0).shape();
    if (shape != ctx.input(1).shape()) {
      return invalid_argument("a and b must have the same shape, got ", shape, " and ",
                              ctx.input(1).shape());
    }
    MR_TRY_ASSIGN(const int64_t given, ctx.int_scalar_input(2));
    MR_TRY_ASSIGN(const int axis, normalize_axis(given, shape.rank()));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (shape.num_elements() == 0) return ok_status();
    const ScanGeometry g(shape, axis, reverse_);
    using Types = ConcatTypes<FloatingTypes, ComplexTypes>;
    return dispatch<Types>(out->dtype(), [&]<class T>() {
      const T* const a = ctx.input(0).data<T>().data();
      const T* const b = ctx.input(1).data<T>().data();
      T* const y = out->mutable_data<T>().data();
      g.for_each_columns(ctx, 1.5, [&](int64_t first, int64_t step, int64_t columns) {
        recur(a + first, b + first, g.length, step, columns, shifted_, y + first);
      });
    });
  }

 private:
  bool reverse_;
  bool shifted_;
};

}  // namespace

void register_linear_recurrence(Registry& registry) {
  const TypeSet types = kFloating | kComplex;
  registry.add({.name = "LinearRecurrence",
                .doc = "y[i] = a[i] * y[i-1] + b[i] along an axis, from y[-1] = 0.",
                .inputs = {{"a", "T"}, {"b", "T"}, {"axis", "host(Tidx)"}},
                .outputs = {{"y", "T"}},
                .types = {{"T", types}, {"Tidx", kIndexTypes, DType::kInt32}},
                .attrs = {{"reverse", "bool = false", "Runs from the last element to the first."},
                          {"shifted", "bool = false", "The factor is that of the element before."}},
                .traits = {.cost = 1.5F},
                .shape = recurrence_shape,
                .gradient = recurrence_grad});
  registry.kernel(
      {.op = "LinearRecurrence", .constraints = {{"T", types}}, .factory = LinearRecurrence::make});
}

}  // namespace millrace
