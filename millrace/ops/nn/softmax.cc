#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/device_engine.h"
#include "millrace/ops/nn/softmax_rows.h"
#include "millrace/ops/nn/staged_rows.h"
#include "millrace/tensor/dispatch.h"

// Softmax and LogSoftmax along the last dimension.

namespace millrace {
namespace {

Status softmax_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape logits, c.with_rank_at_least(0, 1));
  c.set_output(0, std::move(logits));
  return ok_status();
}

Expr last_axis_sum(GradientContext& c, Expr x) {
  return sum(x, int32_vector(c.builder(), {-1}), /*keep_dims=*/true);
}

// dx = (dy - sum(dy y)) y
Status softmax_grad(GradientContext& c) {
  const Expr y = c.output(0), dy = c.gradient();
  c.set(0, (dy - last_axis_sum(c, dy * y)) * y);
  return ok_status();
}

// dx = dy - sum(dy) exp(y)
Status log_softmax_grad(GradientContext& c) {
  const Expr dy = c.gradient();
  c.set(0, dy - last_axis_sum(c, dy) * exp(c.output(0)));
  return ok_status();
}

template <class T, bool kLog>
Status softmax(KernelContext& ctx) {
  using C = ComputeType<T>;
  const Shape shape = ctx.input(0).shape();
  const void* const x_raw = ctx.input(0).raw();
  if (shape.rank() < 1) return invalid_argument("logits must have rank 1 or more, got ", shape);
  MR_TRY_ASSIGN(Tensor * out, ctx.forward_or_allocate_output({0}, 0, shape));
  if (shape.num_elements() == 0) return ok_status();
  if (DeviceEngine* const device = device_engine(ctx)) {
    const int64_t size = shape[shape.rank() - 1];
    const auto kind = kLog ? DeviceEngine::Softmax::kLogSoftmax : DeviceEngine::Softmax::kSoftmax;
    return device->softmax(ctx, kind, out->dtype(), x_raw, shape.num_elements() / size, size,
                           out->mutable_raw());
  }
  MR_TRY_ASSIGN(const Tensor logits, as_compute_type<T>(ctx, ctx.input(0)));
  MR_TRY_ASSIGN(Tensor result, compute_buffer<T>(ctx, *out));
  const int64_t n = shape[shape.rank() - 1];
  const C* const x = logits.data<C>().data();
  C* const y = result.mutable_data<C>().data();
  const SoftmaxRows<C>& rows = isa_table<SoftmaxRows<C>>();
  const auto range = kLog ? rows.log_softmax : rows.softmax;
  ctx.parallel_for(
      shape.num_elements() / n, 2 + static_cast<double>(n),
      [&](int64_t begin, int64_t end) { range(x + begin * n, end - begin, n, y + begin * n); });
  finish_output<T>(ctx, result, *out);
  return ok_status();
}

template <class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  (registry.kernel<Ts>("Softmax", DeviceKind::kCpu, &softmax<Ts, false>), ...);
  (registry.kernel<Ts>("LogSoftmax", DeviceKind::kCpu, &softmax<Ts, true>), ...);
}

}  // namespace

void register_softmax(Registry& registry) {
  registry.add({.name = "Softmax",
                .doc = "exp(logits) / sum(exp(logits)) along the last dimension.",
                .inputs = {{"logits", "T"}},
                .outputs = {{"softmax", "T"}},
                .types = {{"T", kFloating}},
                .traits = {.may_alias = 1, .cost = 2},
                .shape = softmax_shape,
                .gradient = softmax_grad});
  registry.add({.name = "LogSoftmax",
                .doc = "logits - log(sum(exp(logits))) along the last dimension.",
                .inputs = {{"logits", "T"}},
                .outputs = {{"logsoftmax", "T"}},
                .types = {{"T", kFloating}},
                .traits = {.may_alias = 1, .cost = 2},
                .shape = softmax_shape,
                .gradient = log_softmax_grad});
  register_kernels(registry, FloatingTypes());
}

}  // namespace millrace
