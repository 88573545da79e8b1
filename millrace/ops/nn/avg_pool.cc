#include <algorithm>
#include <memory>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/nn/pooling.h"
#include "millrace/tensor/dispatch.h"

// AvgPool and its gradient. Padding does not count: a window at the edge averages what it sees.

namespace millrace {
namespace {

Status avg_pool_grad_shape(ShapeContext& c) {
  MR_TRY(read_pool_spec(c.attrs()).status());
  MR_TRY_ASSIGN(const PartialShape sizes, c.input_as_shape(0));
  MR_TRY(c.with_rank(1, 4).status());
  MR_TRY_ASSIGN(PartialShape out, sizes.merge(PartialShape::of_rank(4)));
  c.set_output(0, std::move(out));
  return ok_status();
}

Status avg_pool_grad(GradientContext& c) {
  c.set(0, call("AvgPoolGrad", {shape_of(c.input(0)), c.gradient()}, pool_attrs(c)));
  return ok_status();
}

Status avg_pool_grad_grad(GradientContext& c) {
  c.set(1, call("AvgPool", {c.gradient()}, pool_attrs(c)));
  return ok_status();
}

// The elements that output (oy, ox) averages.
template <class Sum>
Sum window_count(const PoolGeometry& g, int64_t oy, int64_t ox) {
  return static_cast<Sum>((g.height.last(oy) - g.height.first(oy)) *
                          (g.width.last(ox) - g.width.first(ox)));
}

// Output (oy, ox) of one image, all channels.
template <class T>
void average(const PoolGeometry& g, const T* image, int64_t oy, int64_t ox, T* out) {
  using Sum = SumType<T>;
  constexpr int64_t kChunk = 128;
  const Sum count = window_count<Sum>(g, oy, ox);
  for (int64_t first = 0; first < g.channels; first += kChunk) {
    const int64_t channels = std::min(kChunk, g.channels - first);
    Sum sums[kChunk] = {};
    g.for_each_in_window(oy, ox, [&](int64_t offset) {
      const T* const x = image + offset + first;
      for (int64_t c = 0; c < channels; ++c) sums[c] += static_cast<Sum>(x[c]);
    });
    for (int64_t c = 0; c < channels; ++c) out[first + c] = static_cast<T>(sums[c] / count);
  }
}

template <class T>
class AvgPoolKernel final : public PoolKernel<AvgPoolKernel<T>> {
 public:
  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const PoolGeometry g, pool_geometry(this->spec_, ctx.input(0).shape()));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, g.output));
    if (out->num_elements() == 0) return ok_status();
    const T* const in = ctx.input(0).data<T>().data();
    T* const to = out->mutable_data<T>().data();
    g.for_each_output(ctx, [&](int64_t n, int64_t oy, int64_t ox, int64_t at) {
      average(g, in + n * g.image_size(), oy, ox, to + at);
    });
    return ok_status();
  }
};

template <class T>
class AvgPoolGradKernel final : public PoolKernel<AvgPoolGradKernel<T>> {
 public:
  Status compute(KernelContext& ctx) const override {
    using Sum = SumType<T>;
    MR_TRY_ASSIGN(const Shape shape, ctx.shape_input(0));
    MR_TRY_ASSIGN(const PoolGeometry g, pool_geometry(this->spec_, shape, &ctx.input(1).shape()));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (out->num_elements() == 0) return ok_status();
    Tensor sums = *out;
    if constexpr (!std::is_same_v<T, Sum>) {
      MR_TRY_ASSIGN(sums, ctx.allocate_temp(dtype_of<Sum>, shape));
    }
    const T* const gradient = ctx.input(1).data<T>().data();
    Sum* const all_sums = sums.mutable_data<Sum>().data();
    T* const to = out->mutable_data<T>().data();
    const AxisGeometry &h = g.height, &w = g.width;
    const int64_t image_size = g.image_size();
    const double cost = g.work(static_cast<double>(h.output * w.output * g.channels));
    ctx.parallel_for(g.batch, cost, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        Sum* const image = all_sums + n * image_size;
        std::fill_n(image, image_size, Sum{});
        for (int64_t oy = 0; oy < h.output; ++oy) {
          for (int64_t ox = 0; ox < w.output; ++ox) {
            const T* dy = gradient + ((n * h.output + oy) * w.output + ox) * g.channels;
            const Sum count = window_count<Sum>(g, oy, ox);
            g.for_each_in_window(oy, ox, [&](int64_t offset) {
              Sum* const x = image + offset;
              for (int64_t c = 0; c < g.channels; ++c) x[c] += static_cast<Sum>(dy[c]) / count;
            });
          }
        }
        if constexpr (!std::is_same_v<T, Sum>) {
          for (int64_t i = 0; i < image_size; ++i)
            to[n * image_size + i] = static_cast<T>(image[i]);
        }
      }
    });
    return ok_status();
  }
};

template <class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  (registry.kernel<Ts, AvgPoolKernel<Ts>>("AvgPool", DeviceKind::kCpu), ...);
  (registry.kernel({.op = "AvgPoolGrad",
                    .constraints = {{"T", {dtype_of<Ts>}}},
                    .factory = &AvgPoolGradKernel<Ts>::make,
                    .host_inputs = {0}}),
   ...);
}

}  // namespace

void register_avg_pool(Registry& registry) {
  registry.add({.name = "AvgPool",
                .doc = "The mean of every window, padding left out.",
                .inputs = {{"value", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating}},
                .attrs = pool_attrs(),
                .traits = {.cost = 4},
                .shape = pool_shape,
                .gradient = avg_pool_grad});
  registry.add({.name = "AvgPoolGrad",
                .doc = "The gradient of AvgPool for an input of shape orig_input_shape.",
                .inputs = {{"orig_input_shape", "int32"}, {"grad", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating}},
                .attrs = pool_attrs(),
                .traits = {.cost = 8},
                .shape = avg_pool_grad_shape,
                .gradient = avg_pool_grad_grad});
  register_kernels(registry, FloatingTypes());
}

}  // namespace millrace
