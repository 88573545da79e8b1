#include <algorithm>
#include <memory>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/nn/pooling.h"
#include "millrace/ops/nn/register.h"
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

AttrMap pool_attrs(const GradientContext& c) {
  AttrMap attrs;
  for (const char* name : {"ksize", "strides", "padding", "data_format"}) {
    attrs.set(name, c.attr_value(name));
  }
  return attrs;
}

Status avg_pool_grad(GradientContext& c) {
  c.set(0, call("AvgPoolGrad", {shape_of(c.input(0)), c.gradient()}, pool_attrs(c)));
  return ok_status();
}

Status avg_pool_grad_grad(GradientContext& c) {
  c.set(1, call("AvgPool", {c.gradient()}, pool_attrs(c)));
  return ok_status();
}

template <class T>
using SumOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The elements that output (oy, ox) averages.
template <class Sum>
Sum window_count(const PoolGeometry& g, int64_t oy, int64_t ox) {
  return static_cast<Sum>((g.height.last(oy) - g.height.first(oy)) *
                          (g.width.last(ox) - g.width.first(ox)));
}

// Output (oy, ox) of one image, all channels.
template <class T>
void average(const PoolGeometry& g, const T* image, int64_t oy, int64_t ox, T* out) {
  using Sum = SumOf<T>;
  constexpr int64_t kChunk = 128;
  const AxisGeometry &h = g.height, &w = g.width;
  const Sum count = window_count<Sum>(g, oy, ox);
  for (int64_t first = 0; first < g.channels; first += kChunk) {
    const int64_t channels = std::min(kChunk, g.channels - first);
    Sum sums[kChunk] = {};
    for (int64_t fy = h.first(oy); fy < h.last(oy); ++fy) {
      for (int64_t fx = w.first(ox); fx < w.last(ox); ++fx) {
        const int64_t pixel = (h.origin(oy) + fy) * w.input + w.origin(ox) + fx;
        const T* x = image + pixel * g.channels + first;
        for (int64_t c = 0; c < channels; ++c) sums[c] += static_cast<Sum>(x[c]);
      }
    }
    for (int64_t c = 0; c < channels; ++c) out[first + c] = static_cast<T>(sums[c] / count);
  }
}

template <class T>
class AvgPoolKernel final : public Kernel {
 public:
  explicit AvgPoolKernel(const WindowSpec& spec) : spec_(spec) {}

  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const WindowSpec spec, read_pool_spec(node.attrs));
    return std::unique_ptr<Kernel>(std::make_unique<AvgPoolKernel>(spec));
  }

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const PoolGeometry g, pool_geometry(spec_, ctx.input(0).shape()));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, g.output));
    if (out->num_elements() == 0) return ok_status();
    const T* const in = ctx.input(0).data<T>().data();
    T* const to = out->mutable_data<T>().data();
    const AxisGeometry &h = g.height, &w = g.width;
    const double cost = g.work(static_cast<double>(w.output * g.channels)) * 0.5;
    ctx.parallel_for(g.batch * h.output, cost, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* image = in + row / h.output * h.input * w.input * g.channels;
        for (int64_t ox = 0; ox < w.output; ++ox) {
          average(g, image, row % h.output, ox, to + (row * w.output + ox) * g.channels);
        }
      }
    });
    return ok_status();
  }

 private:
  WindowSpec spec_;
};

template <class T>
class AvgPoolGradKernel final : public Kernel {
 public:
  explicit AvgPoolGradKernel(const WindowSpec& spec) : spec_(spec) {}

  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const WindowSpec spec, read_pool_spec(node.attrs));
    return std::unique_ptr<Kernel>(std::make_unique<AvgPoolGradKernel>(spec));
  }

  Status compute(KernelContext& ctx) const override {
    using Sum = SumOf<T>;
    MR_TRY_ASSIGN(const Shape shape, ctx.shape_input(0));
    MR_TRY_ASSIGN(const PoolGeometry g, pool_geometry(spec_, shape, &ctx.input(1).shape()));
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
    const int64_t image_size = h.input * w.input * g.channels;
    const double cost = g.work(static_cast<double>(h.output * w.output * g.channels));
    ctx.parallel_for(g.batch, cost, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        Sum* const image = all_sums + n * image_size;
        std::fill_n(image, image_size, Sum{});
        for (int64_t oy = 0; oy < h.output; ++oy) {
          for (int64_t ox = 0; ox < w.output; ++ox) {
            const T* dy = gradient + ((n * h.output + oy) * w.output + ox) * g.channels;
            const Sum count = window_count<Sum>(g, oy, ox);
            for (int64_t fy = h.first(oy); fy < h.last(oy); ++fy) {
              for (int64_t fx = w.first(ox); fx < w.last(ox); ++fx) {
                Sum* x = image + ((h.origin(oy) + fy) * w.input + w.origin(ox) + fx) * g.channels;
                for (int64_t c = 0; c < g.channels; ++c) x[c] += static_cast<Sum>(dy[c]) / count;
              }
            }
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

 private:
  WindowSpec spec_;
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
  const std::vector<OpSpec::Attr> attrs = {{"ksize", "list(int) >= 4"},
                                           {"strides", "list(int) >= 4"},
                                           {"padding", "string in {'SAME','VALID'}"},
                                           {"data_format", "string = 'NHWC' in {'NHWC','NCHW'}"}};
  registry.add({.name = "AvgPool",
                .doc = "The mean of every window, padding left out.",
                .inputs = {{"value", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating}},
                .attrs = attrs,
                .traits = {.cost = 4},
                .shape = pool_shape,
                .gradient = avg_pool_grad});
  registry.add({.name = "AvgPoolGrad",
                .doc = "The gradient of AvgPool for an input of shape orig_input_shape.",
                .inputs = {{"orig_input_shape", "int32"}, {"grad", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating}},
                .attrs = attrs,
                .traits = {.cost = 8},
                .shape = avg_pool_grad_shape,
                .gradient = avg_pool_grad_grad});
  register_kernels(registry, FloatingTypes());
}

}  // namespace millrace
