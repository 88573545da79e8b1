// Cumsum and Cumprod: running sums and products along one dimension.

#include <algorithm>
#include <memory>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/reduce/linear_recurrence.h"
#include "millrace/ops/reduce/scan.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

Status scan_shape(ShapeContext& c) {
  const PartialShape& axis_shape = c.input(1);
  if (axis_shape.rank_known() && axis_shape.num_elements() >= 0 && axis_shape.num_elements() != 1) {
    return invalid_argument("axis must be a scalar, got shape ", axis_shape);
  }
  c.set_output(0, c.input(0));
  return ok_status();
}

// Every element reaches the outputs after it, so its gradient sums theirs: a scan backwards.
Expr scan_back(GradientContext& g, Expr y, bool reverse) {
  return call("Cumsum", {y, g.input(1)},
              {{"exclusive", g.attr_value("exclusive")}, {"reverse", !reverse}});
}

Status cumsum_grad(GradientContext& g) {
  MR_TRY_ASSIGN(const bool reverse, g.attr<bool>("reverse"));
  g.set(0, scan_back(g, g.gradient(), reverse));
  return ok_status();
}

// d(out_j)/d(x_i) is the product of the others: those before i, which all j have in common, and
// those from i to j, which a recurrence from the back sums up. Nothing is divided: x may be zero.
Status cumprod_grad(GradientContext& g) {
  MR_TRY_ASSIGN(const bool exclusive, g.attr<bool>("exclusive"));
  MR_TRY_ASSIGN(const bool reverse, g.attr<bool>("reverse"));
  const Expr axis = g.input(1);
  const Expr x = kComplex.contains(g.input(0).dtype()) ? call("Conj", {g.input(0)}) : g.input(0);
  const Expr before = call("Cumprod", {x, axis}, {{"exclusive", true}, {"reverse", reverse}});
  Expr behind = linear_recurrence(x, g.gradient(), axis, !reverse, /*shifted=*/!exclusive);
  if (exclusive) behind = previous_element(behind, axis, !reverse);
  g.set(0, before * behind);
  return ok_status();
}

template <bool product, class R>
R combine(R a, R b) {
  if constexpr (!product) {
    return a + b;
  } else if constexpr (is_complex_v<R>) {
    return R(a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real());
  } else {
    return a * b;
  }
}

// Scans n elements that lie `step` apart (negative: backwards) in each of `cols` columns. `out` may
// be `x`.
template <bool product, class T>
void scan_columns(const T* x, int64_t n, int64_t step, int64_t cols, bool exclusive, T* out) {
  using R = SumType<T>;
  R running[ScanGeometry::kColumns];
  std::fill_n(running, cols, product ? R(1) : R(0));
  for (int64_t r = 0; r < n; ++r, x += step, out += step) {
    for (int64_t k = 0; k < cols; ++k) {
      const R before = running[k];
      running[k] = combine<product>(before, static_cast<R>(x[k]));
      out[k] = static_cast<T>(exclusive ? before : running[k]);
    }
  }
}

template <bool product>
class Scan final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool exclusive, node.attr<bool>("exclusive"));
    MR_TRY_ASSIGN(const bool reverse, node.attr<bool>("reverse"));
    return std::unique_ptr<Kernel>(new Scan(exclusive, reverse));
  }
  Scan(bool exclusive, bool reverse) : exclusive_(exclusive), reverse_(reverse) {}

  Status compute(KernelContext& ctx) const override {
    const Shape shape = ctx.input(0).shape();
    if (ctx.input(1).rank() != 0) {
      return invalid_argument("axis must be a scalar, got shape ", ctx.input(1).shape());
    }
    MR_TRY_ASSIGN(const int64_t given, ctx.int_scalar_input(1));
    const Result<int> place = normalize_axis(given, shape.rank());
    if (!place.ok()) {
      return invalid_argument("Expected scan axis in the range [", -shape.rank(), ", ",
                              shape.rank(), "), but got ", given, " for shape ", shape);
    }
    const void* from = ctx.input(0).raw();
    MR_TRY_ASSIGN(Tensor * y, ctx.forward_or_allocate_output({0}, 0, shape));
    if (shape.num_elements() == 0) return ok_status();
    const ScanGeometry g(shape, *place, reverse_);
    return dispatch<NumberTypes>(y->dtype(), [&]<class T>() {
      const T* x = static_cast<const T*>(from);
      T* out = y->mutable_data<T>().data();
      g.for_each_columns(ctx, 1.2, [&](int64_t first, int64_t step, int64_t columns) {
        scan_columns<product>(x + first, g.length, step, columns, exclusive_, out + first);
      });
    });
  }

 private:
  bool exclusive_;
  bool reverse_;
};

template <bool product>
void register_scan(Registry& registry, const char* name, const char* doc, GradientRule gradient) {
  registry.add({.name = name,
                .doc = doc,
                .inputs = {{"x", "T"}, {"axis", "host(Tidx)"}},
                .outputs = {{"out", "T"}},
                .types = {{"T", kNumberTypes}, {"Tidx", kIndexTypes, DType::kInt32}},
                .attrs = {{"exclusive", "bool = false", "Leaves an element out of its own result."},
                          {"reverse", "bool = false", "Runs from the last element to the first."}},
                .traits = {.cost = 1.0F, .dimensions_in = "axis"},
                .shape = scan_shape,
                .gradient = gradient});
  registry.kernel({.op = name, .constraints = {{"T", kNumbers}}, .factory = Scan<product>::make});
}

}  // namespace

void register_scans(Registry& registry) {
  register_scan<false>(registry, "Cumsum", "Running sums along an axis.", cumsum_grad);
  register_scan<true>(registry, "Cumprod", "Running products along an axis.", cumprod_grad);
}

}  // namespace millrace
