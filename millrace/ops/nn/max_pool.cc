#include <limits>
#include <memory>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/size_rules.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/nn/pooling.h"
#include "millrace/ops/nn/staged_rows.h"
#include "millrace/tensor/dispatch.h"

// MaxPool, MaxPool3D and their gradients. A NaN in a window is its largest element; of equal ones
// the first is.

namespace millrace {
namespace {

template <int N>
struct Names;
template <>
struct Names<2> {
  static constexpr const char *kPool = "MaxPool", *kGrad = "MaxPoolGrad",
                              *kGradGrad = "MaxPoolGradGrad";
};
template <>
struct Names<3> {
  static constexpr const char *kPool = "MaxPool3D", *kGrad = "MaxPool3DGrad",
                              *kGradGrad = "MaxPool3DGradGrad";
};

template <int N>
Status max_pool_grad_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const WindowSpec<N> spec, read_pool_spec<N>(c.attrs()));
  MR_TRY_ASSIGN(PartialShape input, c.with_rank(0, spec.kRank));
  MR_TRY_ASSIGN(const PartialShape pooled,
                partial_output_shape(spec, input, input.dim(spec.channel_dim())));
  for (int i = 1; i < 3; ++i) MR_TRY(with_shape(c, i, pooled).status());
  c.set_output(0, std::move(input));
  return ok_status();
}

template <int N>
Status max_pool_grad_grad_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const WindowSpec<N> spec, read_pool_spec<N>(c.attrs()));
  MR_TRY_ASSIGN(const PartialShape images, c.with_rank(0, spec.kRank));
  MR_TRY_ASSIGN(const PartialShape input, with_shape(c, 2, images));
  MR_TRY_ASSIGN(const PartialShape pooled,
                partial_output_shape(spec, input, input.dim(spec.channel_dim())));
  MR_TRY_ASSIGN(PartialShape out, with_shape(c, 1, pooled));
  c.set_output(0, std::move(out));
  return ok_status();
}

template <int N>
Status max_pool_grad(GradientContext& c) {
  c.set(0, call(Names<N>::kGrad, {c.input(0), c.output(0), c.gradient()}, pool_attrs(c)));
  return ok_status();
}

// Both are linear in the last input, and constant almost everywhere in the others.
Status grad_by_last_input(GradientContext& c, const char* op) {
  c.set(0, zeros_like(c.input(0)));
  c.set(1, zeros_like(c.input(1)));
  c.set(2, call(op, {c.input(0), c.input(1), c.gradient()}, pool_attrs(c)));
  return ok_status();
}
template <int N>
Status max_pool_grad_grad(GradientContext& c) {
  return grad_by_last_input(c, Names<N>::kGradGrad);
}
template <int N>
Status max_pool_grad_grad_grad(GradientContext& c) {
  return grad_by_last_input(c, Names<N>::kGrad);
}

// What an element of a window costs in nanoseconds, and in the gradient, where its place is found.
constexpr double kCost = 0.1, kGradCost = 0.2;

template <class T, int N>
class MaxPoolKernel final : public PoolKernel<MaxPoolKernel<T, N>, N> {
 public:
  Status compute(KernelContext& ctx) const override {
    return pool_forward<T>(ctx, this->spec_, kCost, &PoolLoops<ComputeType<T>>::max);
  }
};

// The gradient of the pool, and of that gradient.
template <class T, int N, bool kGradGrad>
class MaxPoolGradKernel final : public PoolKernel<MaxPoolGradKernel<T, N, kGradGrad>, N> {
 public:
  Status compute(KernelContext& ctx) const override {
    using C = ComputeType<T>;
    const Shape &input_shape = ctx.input(0).shape(), &gradient_shape = ctx.input(2).shape();
    MR_TRY_ASSIGN(const PoolGeometry<N> g,
                  pool_geometry(this->spec_, input_shape, &ctx.input(1).shape(), "orig_output"));
    if (const Shape& wanted = kGradGrad ? input_shape : g.output; !(gradient_shape == wanted)) {
      return invalid_argument("grad must have shape ", wanted, " for an orig_input of ",
                              input_shape, ", got ", gradient_shape);
    }
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, kGradGrad ? g.output : input_shape));
    if (out->num_elements() == 0) return ok_status();
    if (DeviceEngine* const device = device_engine(ctx)) {
      const auto kind = kGradGrad ? DeviceEngine::Pool::kAtMax : DeviceEngine::Pool::kMaxGradient;
      return device->pool(ctx, kind, out->dtype(), engine_pooling(g), ctx.input(0).raw(),
                          ctx.input(2).raw(), out->mutable_raw());
    }
    MR_TRY_ASSIGN(const Tensor input, as_compute_type<T>(ctx, ctx.input(0)));
    MR_TRY_ASSIGN(const Tensor gradient, as_compute_type<T>(ctx, ctx.input(2)));
    MR_TRY_ASSIGN(Tensor result, compute_buffer<T>(ctx, *out));
    const C *const in = input.data<C>().data(), *const grad = gradient.data<C>().data();
    C* const to = result.mutable_data<C>().data();
    const PoolVolume volume = g.volume();
    const PoolLoops<C>& loops = isa_table<PoolLoops<C>>();
    if constexpr (kGradGrad) {
      g.for_each_row(ctx, kGradCost, [&](int64_t image, int64_t row, int64_t offset) {
        const int64_t first = image * g.image_size();
        loops.at_max(volume, in + first, grad + first, row, 0, g.channels, to + offset);
      });
    } else {
      if (g.window_size() > std::numeric_limits<int32_t>::max()) {
        return unimplemented("the gradient of windows of ", g.window_size(), " pixels");
      }
      g.sum_windows(ctx, kGradCost, to,
                    [&](int64_t image, int64_t row, int64_t from_channel, int64_t to_channel) {
                      const int64_t first = image * g.image_size();
                      const C* dy = grad + image * g.output_size() + row * g.row_size();
                      loops.max_gradient(volume, in + first, dy, row, from_channel, to_channel,
                                         to + first);
                    });
    }
    finish_output<T>(ctx, result, *out);
    return ok_status();
  }
};

template <int N, class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  (registry.kernel<Ts, MaxPoolKernel<Ts, N>>(Names<N>::kPool, DeviceKind::kCpu), ...);
  (registry.kernel<Ts, MaxPoolGradKernel<Ts, N, true>>(Names<N>::kGradGrad, DeviceKind::kCpu), ...);
  const auto add_grad = [&](DType type, KernelFactory factory) {
    KernelDef def{.op = Names<N>::kGrad, .constraints = {{"T", {type}}}, .factory = factory};
    if (N == 3) def.constraints.push_back({"TInput", {type}});
    registry.kernel(def);
  };
  (add_grad(dtype_of<Ts>, &MaxPoolGradKernel<Ts, N, false>::make), ...);
}

template <int N>
void register_ops(Registry& registry) {
  const OpSpec::Type defaulted{"T", kFloating, DType::kFloat};
  const float cost = N == 2 ? 4 : 8;
  // In three dimensions the gradient's type has another attribute, which must be the same.
  const char* const input_type = N == 2 ? "T" : "TInput";
  std::vector<OpSpec::Type> grad_types = {defaulted};
  if (N == 3) grad_types.push_back({"TInput", kFloating, DType::kFloat});
  registry.add({.name = Names<N>::kPool,
                .doc = "The largest element of every window.",
                .inputs = {{"input", "T"}},
                .outputs = {{"output", "T"}},
                .types = {N == 2 ? defaulted : OpSpec::Type{"T", kFloating}},
                .attrs = pool_attrs<N>(),
                .traits = {.cost = cost, .image_inputs = 1, .image_outputs = 1},
                .shape = pool_shape<N>,
                .gradient = max_pool_grad<N>});
  registry.add({.name = Names<N>::kGrad,
                .doc = str_cat("The gradient of ", Names<N>::kPool,
                               ": grad where the largest elements were."),
                .inputs = {{"orig_input", input_type}, {"orig_output", input_type}, {"grad", "T"}},
                .outputs = {{"output", "T"}},
                .types = grad_types,
                .attrs = pool_attrs<N>(),
                .traits = {.cost = 2 * cost, .image_inputs = 7, .image_outputs = 1},
                .shape = max_pool_grad_shape<N>,
                .gradient = max_pool_grad_grad<N>});
  registry.add({.name = Names<N>::kGradGrad,
                .doc = str_cat("The gradient of ", Names<N>::kGrad,
                               ": of every window the element of grad where the largest element of "
                               "orig_input is."),
                .inputs = {{"orig_input", "T"}, {"orig_output", "T"}, {"grad", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating}},
                .attrs = pool_attrs<N>(),
                .traits = {.cost = 2 * cost, .image_inputs = 7, .image_outputs = 1},
                .shape = max_pool_grad_grad_shape<N>,
                .gradient = max_pool_grad_grad_grad<N>});
  register_kernels<N>(registry, FloatingTypes());
}

}  // namespace

void register_max_pool(Registry& registry) {
  register_ops<2>(registry);
  register_ops<3>(registry);
}

}  // namespace millrace
