#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

Status check_num(int64_t num) {
  if (num > 0) return ok_status();
  return invalid_argument("Requires num > 0: ", num);
}

Status lin_space_shape(ShapeContext& c) {
  for (int i = 0; i < 3; ++i) MR_TRY(c.with_rank(i, 0).status());
  const std::optional<int64_t> num = c.input_scalar(2);
  if (num) MR_TRY(check_num(*num));
  c.set_output(0, PartialShape{num.value_or(PartialShape::kUnknownDim)});
  return ok_status();
}

// Element t of the way is (1 - t) * start + t * stop.
Status lin_space_grad(GradientContext& g) {
  OpBuilder& b = g.builder();
  const Expr dy = g.gradient(), zero = int32_scalar(b, 0);
  const Expr way = call("LinSpace", {constant_like(dy, 0), constant_like(dy, 1), g.input(2)});
  g.set(0, sum(dy * (1.0 - way), zero));
  g.set(1, sum(dy * way, zero));
  return ok_status();
}

Status lin_space_cpu(KernelContext& ctx) {
  for (int i = 0; i < 3; ++i) MR_TRY(expect_rank(ctx, i, 0));
  MR_TRY_ASSIGN(const int64_t num, ctx.int_scalar_input(2));
  MR_TRY(check_num(num));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape{num}));
  return dispatch<FloatingTypes>(out->dtype(), [&]<class T>() {
    using R = ComputeType<T>;
    const T first = ctx.input(0).item<T>(), last = ctx.input(1).item<T>();
    const R start = static_cast<R>(first);
    const R step = num > 1 ? (static_cast<R>(last) - start) / static_cast<R>(num - 1) : R(0);
    T* y = out->mutable_data<T>().data();
    ctx.parallel_for(num, 0.5, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = T(start + step * static_cast<R>(i));
    });
    // Exactly, whatever was rounded on the way.
    if (num > 1) y[num - 1] = last;
  });
}

}  // namespace

void register_lin_space(Registry& registry) {
  registry.add({.name = "LinSpace",
                .doc = "num numbers from start to stop, both included, in equal steps.",
                .inputs = {{"start", "host(T)"}, {"stop", "host(T)"}, {"num", "host(Tidx)"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating}, {"Tidx", kIndexTypes, DType::kInt32}},
                .traits = {.cost = 0.5F},
                .shape = lin_space_shape,
                .gradient = lin_space_grad});
  registry.kernel("LinSpace", DeviceKind::kCpu, lin_space_cpu);
}

}  // namespace millrace
