#include <algorithm>
#include <memory>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/size_rules.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/nn/pooling.h"
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

// One output pixel of an image, all channels.
template <class T, int N>
void average(const PoolGeometry<N>& g, const T* image, const typename PoolGeometry<N>::Place& at,
             T* out) {
  using Sum = SumType<T>;
  constexpr int64_t kChunk = 128;
  const Sum count = static_cast<Sum>(g.window_size(at));
  for (int64_t first = 0; first < g.channels; first += kChunk) {
    const int64_t channels = std::min(kChunk, g.channels - first);
    Sum sums[kChunk] = {};
    g.for_each_in_window(at, [&](int64_t offset) {
      const T* const x = image + offset + first;
      for (int64_t c = 0; c < channels; ++c) sums[c] += static_cast<Sum>(x[c]);
    });
    for (int64_t c = 0; c < channels; ++c) out[first + c] = static_cast<T>(sums[c] / count);
  }
}

template <class T, int N>
class AvgPoolKernel final : public PoolKernel<AvgPoolKernel<T, N>, N> {
 public:
  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const PoolGeometry<N> g, pool_geometry(this->spec_, ctx.input(0).shape()));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, g.output));
    if (out->num_elements() == 0) return ok_status();
    const T* const in = ctx.input(0).data<T>().data();
    T* const to = out->mutable_data<T>().data();
    g.for_each_output(ctx, [&](int64_t n, const auto& at, int64_t offset) {
      average(g, in + n * g.image_size(), at, to + offset);
    });
    return ok_status();
  }
};

template <class T, int N>
class AvgPoolGradKernel final : public PoolKernel<AvgPoolGradKernel<T, N>, N> {
 public:
  Status compute(KernelContext& ctx) const override {
    using Sum = SumType<T>;
    MR_TRY_ASSIGN(const Shape shape, ctx.shape_input(0));
    MR_TRY_ASSIGN(const PoolGeometry<N> g,
                  pool_geometry(this->spec_, shape, &ctx.input(1).shape()));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (out->num_elements() == 0) return ok_status();
    Tensor sums = *out;
    if constexpr (!std::is_same_v<T, Sum>) {
      MR_TRY_ASSIGN(sums, ctx.allocate_temp(dtype_of<Sum>, shape));
    }
    const T* const gradient = ctx.input(1).data<T>().data();
    Sum* const all_sums = sums.mutable_data<Sum>().data();
    T* const to = out->mutable_data<T>().data();
    const int64_t image_size = g.image_size(), output_size = g.output_size();
    const double cost = g.work(static_cast<double>(output_size));
    ctx.parallel_for(g.batch, cost, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        Sum* const image = all_sums + n * image_size;
        std::fill_n(image, image_size, Sum{});
        g.for_each_output([&](const auto& at, int64_t place) {
          const T* const dy = gradient + n * output_size + place;
          const Sum count = static_cast<Sum>(g.window_size(at));
          g.for_each_in_window(at, [&](int64_t offset) {
            Sum* const x = image + offset;
            for (int64_t c = 0; c < g.channels; ++c) x[c] += static_cast<Sum>(dy[c]) / count;
          });
        });
        if constexpr (!std::is_same_v<T, Sum>) {
          for (int64_t i = 0; i < image_size; ++i)
            to[n * image_size + i] = static_cast<T>(image[i]);
        }
      }
    });
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
                .traits = {.cost = N == 2 ? 4 : 8},
                .shape = pool_shape<N>,
                .gradient = avg_pool_grad<N>});
  registry.add({.name = Names<N>::kGrad,
                .doc = str_cat("The gradient of ", Names<N>::kPool,
                               " for an input of shape orig_input_shape."),
                .inputs = {{"orig_input_shape", "host(int32)"}, {"grad", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating}},
                .attrs = pool_attrs<N>(),
                .traits = {.cost = N == 2 ? 8 : 16},
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
