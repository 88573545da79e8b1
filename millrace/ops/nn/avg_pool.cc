#include <memory>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/size_rules.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/nn/pooling.h"
#include "millrace/ops/nn/staged_rows.h"
#include "millrace/tensor/dispatch.h"

// AvgPool, AvgPool3D and their gradients. Padding does not count: a window at the edge averages
// what it sees.

namespace millrace {
namespace {

template <int N>
struct Names;
template <>
struct Names<2> {
  static constexpr const char *kPool = "AvgPool", *kGrad = "AvgPoolGrad", *kInput = "value";
};
template <>
struct Names<3> {
  static constexpr const char *kPool = "AvgPool3D", *kGrad = "AvgPool3DGrad", *kInput = "input";
};

template <int N>
Status avg_pool_grad_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const WindowSpec<N> spec, read_pool_spec<N>(c.attrs()));
  MR_TRY_ASSIGN(PartialShape sizes, sizes_input(c, 0, spec.kRank));
  MR_TRY_ASSIGN(const PartialShape pooled,
                partial_output_shape(spec, sizes, sizes.dim(spec.channel_dim())));
  MR_TRY(with_shape(c, 1, pooled).status());
  c.set_output(0, std::move(sizes));
  return ok_status();
}

template <int N>
Status avg_pool_grad(GradientContext& c) {
  c.set(0, call(Names<N>::kGrad, {shape_of(c.input(0)), c.gradient()}, pool_attrs(c)));
  return ok_status();
}

template <int N>
Status avg_pool_grad_grad(GradientContext& c) {
  c.set(1, call(Names<N>::kPool, {c.gradient()}, pool_attrs(c)));
  return ok_status();
}

// What an element of a window costs in nanoseconds.
constexpr double kCost = 0.1;

template <class T, int N>
class AvgPoolKernel final : public PoolKernel<AvgPoolKernel<T, N>, N> {
 public:
  Status compute(KernelContext& ctx) const override {
    return pool_forward<T>(ctx, this->spec_, kCost, &PoolLoops<ComputeType<T>>::average);
  }
};

template <class T, int N>
class AvgPoolGradKernel final : public PoolKernel<AvgPoolGradKernel<T, N>, N> {
 public:
  Status compute(KernelContext& ctx) const override {
    using C = ComputeType<T>;
    MR_TRY_ASSIGN(const Shape shape, ctx.shape_input(0));
    MR_TRY_ASSIGN(const PoolGeometry<N> g,
                  pool_geometry(this->spec_, shape, &ctx.input(1).shape()));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (out->num_elements() == 0) return ok_status();
    if (DeviceEngine* const device = device_engine(ctx)) {
      return device->pool(ctx, DeviceEngine::Pool::kAverageGradient, out->dtype(),
                          engine_pooling(g), nullptr, ctx.input(1).raw(), out->mutable_raw());
    }
    MR_TRY_ASSIGN(const Tensor gradient, as_compute_type<T>(ctx, ctx.input(1)));
    MR_TRY_ASSIGN(Tensor result, compute_buffer<T>(ctx, *out));
    const C* const grad = gradient.data<C>().data();
    C* const sums = result.mutable_data<C>().data();
    const PoolVolume volume = g.volume();
    g.sum_windows(ctx, kCost, sums, [&](int64_t image, int64_t row, int64_t from, int64_t to) {
      const C* const dy = grad + image * g.output_size() + row * g.row_size();
      isa_table<PoolLoops<C>>().average_gradient(volume, dy, row, from, to,
                                                 sums + image * g.image_size());
    });
    finish_output<T>(ctx, result, *out);
    return ok_status();
  }
};

template <int N, class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  (registry.kernel<Ts, AvgPoolKernel<Ts, N>>(Names<N>::kPool, DeviceKind::kCpu), ...);
  (registry.kernel({.op = Names<N>::kGrad,
                    .constraints = {{"T", {dtype_of<Ts>}}},
                    .factory = &AvgPoolGradKernel<Ts, N>::make}),
   ...);
}

template <int N>
void register_ops(Registry& registry) {
  registry.add({.name = Names<N>::kPool,
                .doc = "The mean of every window, padding left out.",
                .inputs = {{Names<N>::kInput, "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating}},
                .attrs = pool_attrs<N>(),
                .traits = {.cost = N == 2 ? 4 : 8, .image_inputs = 1, .image_outputs = 1},
                .shape = pool_shape<N>,
                .gradient = avg_pool_grad<N>});
  registry.add({.name = Names<N>::kGrad,
                .doc = str_cat("The gradient of ", Names<N>::kPool,
                               " for an input of shape orig_input_shape."),
                .inputs = {{"orig_input_shape", "host(int32)"}, {"grad", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating}},
                .attrs = pool_attrs<N>(),
                .traits = {.cost = N == 2 ? 8 : 16,
                           .image_inputs = 2,
                           .image_outputs = 1,
                           .each_dimension_in = "orig_input_shape"},
                .shape = avg_pool_grad_shape<N>,
                .gradient = avg_pool_grad_grad<N>});
  register_kernels<N>(registry, FloatingTypes());
}

}  // namespace

void register_avg_pool(Registry& registry) {
  register_ops<2>(registry);
  register_ops<3>(registry);
}

}  // namespace millrace
