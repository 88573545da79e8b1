// ArgMax and ArgMin: where the largest or smallest element along one dimension stands.

#include <algorithm>
#include <limits>
#include <memory>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/device_engine.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

Status arg_shape(ShapeContext& c) {
  const PartialShape& axis_shape = c.input(1);
  if (axis_shape.rank_known() && axis_shape.num_elements() >= 0 && axis_shape.num_elements() != 1) {
    return invalid_argument("dimension must be a scalar, got shape ", axis_shape);
  }
  MR_TRY_ASSIGN(const PartialShape x, c.with_rank_at_least(0, 1));
  if (!x.rank_known()) return ok_status();
  const std::optional<int64_t> given = c.input_scalar(1);
  if (!given) {
    c.set_output(0, PartialShape::of_rank(x.rank() - 1));
    return ok_status();
  }
  MR_TRY_ASSIGN(const int axis, normalize_axis(*given, x.rank(), "dimension"));
  PartialShape y = PartialShape::scalar();
  for (int i = 0; i < x.rank(); ++i) {
    if (i != axis) y.add_dim(x.dim(i));
  }
  c.set_output(0, std::move(y));
  return ok_status();
}

// Columns whose best elements are kept on the stack.
constexpr int64_t kColumns = 512;

// Whether x is to be preferred to the best so far. NaN never is.
template <bool max, class T>
bool better(T x, T best) {
  return max ? x > best : x < best;
}

template <bool max, class T>
constexpr T worst() {
  using Limits = std::numeric_limits<T>;
  if constexpr (max) {
    return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  } else {
    return Limits::has_infinity ? Limits::infinity() : Limits::max();
  }
}

// The first of the best elements of a row. Several candidates at a time, one per lane: the first in
// each lane, then the first of those.
template <bool max, class T>
int64_t best_in_row(const T* x, int64_t n) {
  constexpr int64_t kLanes = 16;
  T best[kLanes];
  int64_t where[kLanes];
  for (int64_t k = 0; k < kLanes; ++k) best[k] = worst<max, T>(), where[k] = 0;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k) {
      const bool found = better<max>(x[i + k], best[k]);
      best[k] = found ? x[i + k] : best[k];
      where[k] = found ? i + k : where[k];
    }
  }
  T first = worst<max, T>();
  int64_t at = 0;
  for (int64_t k = 0; k < kLanes; ++k) {
    if (better<max>(best[k], first) || (best[k] == first && where[k] < at)) {
      first = best[k];
      at = where[k];
    }
  }
  for (; i < n; ++i) {
    if (better<max>(x[i], first)) first = x[i], at = i;
  }
  return at;
}

// The same for each of `cols` columns, at most kColumns, of n rows that lie `stride` apart.
template <bool max, class T, class Out>
void best_in_columns(const T* x, int64_t n, int64_t stride, int64_t cols, Out* out) {
  T best[kColumns];
  std::fill_n(best, cols, worst<max, T>());
  std::fill_n(out, cols, Out{0});
  for (int64_t r = 0; r < n; ++r, x += stride) {
    for (int64_t k = 0; k < cols; ++k) {
      const bool found = better<max>(x[k], best[k]);
      best[k] = found ? x[k] : best[k];
      out[k] = found ? static_cast<Out>(r) : out[k];
    }
  }
}

template <bool max, class T, class Out>
void arg_reduce(KernelContext& ctx, const T* x, int64_t outer, int64_t n, int64_t inner, Out* out) {
  if (inner == 1) {
    ctx.parallel_for(outer, static_cast<double>(n), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        out[r] = static_cast<Out>(best_in_row<max>(x + r * n, n));
      }
    });
    return;
  }
  const int64_t chunks = (inner + kColumns - 1) / kColumns;
  const auto elements = static_cast<double>(n * std::min(inner, kColumns));
  ctx.parallel_for(outer * chunks, elements, [&](int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u) {
      const int64_t row = u / chunks, first = u % chunks * kColumns;
      best_in_columns<max>(x + row * n * inner + first, n, inner, std::min(kColumns, inner - first),
                           out + row * inner + first);
    }
  });
}

template <bool max, class T>
Status arg_cpu(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  if (x.rank() == 0) return invalid_argument("the input must have at least one dimension");
  MR_TRY_ASSIGN(const int64_t given, ctx.int_scalar_input(1));
  MR_TRY_ASSIGN(const int axis, normalize_axis(given, x.rank(), "dimension"));
  const int64_t n = x.dim(axis);
  if (n == 0) {
    return invalid_argument("Reduction axis ", axis, " is empty in shape ", x.shape());
  }
  const bool wide = ctx.output_type(0) == DType::kInt64;
  if (!wide && n - 1 > std::numeric_limits<int32_t>::max()) {
    return invalid_argument("positions along dimension ", axis, " of shape ", x.shape(),
                            " do not fit in int32: use output_type=int64");
  }
  int64_t kept[Shape::kMaxRank];
  size_t count = 0;
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < x.rank(); ++i) {
    if (i == axis) continue;
    kept[count++] = x.dim(i);
    (i < axis ? outer : inner) *= x.dim(i);
  }
  MR_TRY_ASSIGN(const Shape shape, Shape::make({kept, count}));
  MR_TRY_ASSIGN(Tensor * y, ctx.allocate_output(0, shape));
  if (shape.num_elements() == 0) return ok_status();
  if (DeviceEngine* const device = device_engine(ctx)) {
    return device->arg_reduce(ctx, max, x.dtype(), y->dtype(), x.raw(), outer, n, inner,
                              y->mutable_raw());
  }
  const T* data = x.data<T>().data();
  if (wide) {
    arg_reduce<max>(ctx, data, outer, n, inner, y->mutable_data<int64_t>().data());
  } else {
    arg_reduce<max>(ctx, data, outer, n, inner, y->mutable_data<int32_t>().data());
  }
  return ok_status();
}

template <bool max>
void register_arg(Registry& registry, const char* name, const char* doc) {
  registry.add(
      {.name = name,
       .doc = doc,
       .inputs = {{"input", "T"}, {"dimension", "host(Tidx)"}},
       .outputs = {{"output", "output_type"}},
       .types = {{"T", kNumberTypes},
                 {"Tidx", kIndexTypes, DType::kInt32},
                 {"output_type", kIndexTypes, DType::kInt64}},
       .traits = {.cannot_differentiate = true, .cost = 1.0F, .dimensions_in = "dimension"},
       .shape = arg_shape});
  auto add = [&]<class... Ts>(TypeList<Ts...>) {
    (registry.kernel<Ts>(name, DeviceKind::kCpu, arg_cpu<max, Ts>), ...);
  };
  add(RealTypes());
}

}  // namespace

void register_arg_reductions(Registry& registry) {
  register_arg<true>(registry, "ArgMax",
                     "Where the largest element along a dimension stands: the first of equals.");
  register_arg<false>(registry, "ArgMin",
                      "Where the smallest element along a dimension stands: the first of equals.");
}

}  // namespace millrace
