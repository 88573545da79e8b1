#include <algorithm>
#include <bit>
#include <string>
#include <type_traits>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/device_engine.h"
#include "millrace/ops/element.h"
#include "millrace/ops/math/broadcast.h"
#include "millrace/ops/math/select_loops.h"
#include "millrace/tensor/resource_handle.h"
#include "millrace/tensor/variant.h"

namespace millrace {
namespace {

Status select_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape data, c.input(1).merge(c.input(2)));
  const PartialShape& condition = c.input(0);
  if (condition.rank_known() && condition.rank() > 0 && data.rank_known()) {
    if (condition.rank() == 1 && data.rank() >= 1) {
      MR_TRY_ASSIGN(const PartialShape rows, PartialShape({data.dim(0)}).merge(condition));
      data.set_dim(0, rows.dim(0));
    } else {
      MR_TRY_ASSIGN(data, data.merge(condition));
    }
  } else if (condition.rank() > 1) {
    data = condition;
  }
  c.set_output(0, std::move(data));
  return ok_status();
}

Status select_grad(GradientContext& c) {
  const Expr condition = c.input(0), zeros = zeros_like(c.input(1));
  c.set(1, select(condition, c.gradient(), zeros));
  c.set(2, select(condition, zeros, c.gradient()));
  return ok_status();
}

// out[i] = picks[i] ? t[i] : e[i], the operands moving by steps of 0 or 1.
template <class T>
void select_run(const bool* picks, int64_t picks_step, const T* t, int64_t t_step, const T* e,
                int64_t e_step, T* out, int64_t n) {
  if constexpr (std::is_integral_v<T>) {
    if (picks_step != 0) {
      constexpr int kSize = std::bit_width(sizeof(T)) - 1;
      return isa_table<SelectLoops>().run[kSize](picks, {t, t_step}, {e, e_step}, out, n);
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    out[i] = picks[i * picks_step] ? t[i * t_step] : e[i * e_step];
  }
}

// out[i * row .. ] = condition[i] ? t[i * row .. ] : e[i * row .. ] for `rows` rows.
template <class T>
void select_rows(KernelContext& ctx, const bool* condition, const T* t, const T* e, T* out,
                 int64_t rows, int64_t row) {
  const double cost = std::is_trivially_copyable_v<T> ? 0.3 : 20;
  ctx.parallel_for(rows, cost * static_cast<double>(row), [&](int64_t begin, int64_t end) {
    if (row == 1) {
      select_run(condition + begin, 1, t + begin, 1, e + begin, 1, out + begin, end - begin);
      return;
    }
    for (int64_t i = begin; i < end; ++i) {
      const T* from = (condition[i] ? t : e) + i * row;
      if (from != out + i * row) std::copy_n(from, row, out + i * row);
    }
  });
}

// The condition seen as `shape`, so that it broadcasts to the data.
Status select_on_device(KernelContext& ctx, DeviceEngine& device, const Shape& condition,
                        const Shape& all) {
  const Shape t = ctx.input(1).shape(), e = ctx.input(2).shape();
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, all));
  return device.select(ctx, dtype_size(out->dtype()), {ctx.input(0).raw(), &condition},
                       {ctx.input(1).raw(), &t}, {ctx.input(2).raw(), &e}, out->mutable_raw(), all);
}

Status select_cpu(KernelContext& ctx) {
  const Shape condition = ctx.input(0).shape();
  const Shape shape = ctx.input(1).shape();
  if (!(shape == ctx.input(2).shape())) {
    return invalid_argument("'t' and 'e' must have one shape: ", shape, " and ",
                            ctx.input(2).shape());
  }
  DeviceEngine* const device = device_engine(ctx);
  if (device != nullptr && condition.is_scalar()) {
    return select_on_device(ctx, *device, condition, shape);
  }
  if (condition.is_scalar()) {
    ctx.set_output_value(0, ctx.take_input(ctx.input(0).item<bool>() ? 1 : 2));
    return ok_status();
  }
  const bool by_row =
      condition.rank() == 1 && shape.rank() >= 1 && condition.dim(0) == shape.dim(0);
  if (!by_row && !(condition == shape)) {
    return invalid_argument(
        "'condition' must be a scalar, a vector with one element per row, or of "
        "the shape of 't', which is ",
        shape, "; it is ", condition);
  }
  if (device != nullptr) {
    std::vector<int64_t> column(static_cast<size_t>(shape.rank()), 1);
    column[0] = shape.dim(0);
    MR_TRY_ASSIGN(const Shape rows, Shape::make(column));
    return select_on_device(ctx, *device, by_row ? rows : condition, shape);
  }
  const void* t = ctx.input(1).raw();
  const void* e = ctx.input(2).raw();
  const bool* picks = ctx.input(0).data<bool>().data();
  const int64_t rows = condition.num_elements();
  const int64_t row = rows == 0 ? 0 : shape.num_elements() / rows;
  const bool plain = is_plain(ctx.output_type(0));
  Result<Tensor*> out =
      plain ? ctx.forward_or_allocate_output({1, 2}, 0, shape) : ctx.allocate_output(0, shape);
  MR_TRY(out.status());
  void* to = (*out)->mutable_raw();
  with_element(ctx.output_type(0), [&]<class T>() {
    select_rows(ctx, picks, static_cast<const T*>(t), static_cast<const T*>(e), static_cast<T*>(to),
                rows, row);
  });
  return ok_status();
}

Status select_v2_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape data, broadcast_shapes(c.input(1), c.input(2)));
  MR_TRY_ASSIGN(PartialShape all, broadcast_shapes(c.input(0), data));
  c.set_output(0, std::move(all));
  return ok_status();
}

Status select_v2_grad(GradientContext& c) {
  const Expr condition = c.input(0), g = c.gradient(), zeros = zeros_like(g);
  c.set(1, sum_to_shape_of(call("SelectV2", {condition, g, zeros}), c.input(1)));
  c.set(2, sum_to_shape_of(call("SelectV2", {condition, zeros, g}), c.input(2)));
  return ok_status();
}

Status select_v2_cpu(KernelContext& ctx) {
  MR_TRY_ASSIGN(
      const BroadcastPlan plan,
      BroadcastPlan::make({&ctx.input(0).shape(), &ctx.input(1).shape(), &ctx.input(2).shape()}));
  if (DeviceEngine* const device = device_engine(ctx)) {
    return select_on_device(ctx, *device, ctx.input(0).shape(), plan.shape());
  }
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, plan.shape()));
  const bool* picks = ctx.input(0).data<bool>().data();
  const int64_t steps[] = {plan.step(0), plan.step(1), plan.step(2)};
  with_element(out->dtype(), [&]<class T>() {
    const T* t = static_cast<const T*>(ctx.input(1).raw());
    const T* e = static_cast<const T*>(ctx.input(2).raw());
    T* to = static_cast<T*>(out->mutable_raw());
    ctx.parallel_for(plan.shape().num_elements(), 1, [&](int64_t begin, int64_t end) {
      plan.for_each_run(begin, end, [&](const int64_t* from, int64_t at, int64_t n) {
        select_run(picks + from[0], steps[0], t + from[1], steps[1], e + from[2], steps[2], to + at,
                   n);
      });
    });
  });
  return ok_status();
}

}  // namespace

void register_select(Registry& registry) {
  registry.add({.name = "Select",
                .doc =
                    "t where the condition is true, else e. A vector condition picks whole rows, a "
                    "scalar one everything.",
                .inputs = {{"condition", "bool"}, {"t", "T"}, {"e", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}},
                .traits = {.may_alias = 6, .cost = 0.3F, .fused_by = "_FusedElementwise"},
                .shape = select_shape,
                .gradient = select_grad});
  registry.kernel("Select", DeviceKind::kCpu, select_cpu);
  registry.add({.name = "SelectV2",
                .doc = "t where the condition is true, else e, all three broadcast together.",
                .inputs = {{"condition", "bool"}, {"t", "T"}, {"e", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}},
                .traits = {.elementwise = true, .cost = 1, .fused_by = "_FusedElementwise"},
                .shape = select_v2_shape,
                .gradient = select_v2_grad});
  registry.kernel("SelectV2", DeviceKind::kCpu, select_v2_cpu);
}

}  // namespace millrace
