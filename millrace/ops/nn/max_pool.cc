#include <algorithm>
#include <memory>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/nn/pooling.h"
#include "millrace/tensor/dispatch.h"

// MaxPool and its gradients. A NaN in a window is its largest element; of equal ones the first is.

namespace millrace {
namespace {

Status max_pool_grad_shape(ShapeContext& c) {
  MR_TRY(read_pool_spec(c.attrs()).status());
  MR_TRY_ASSIGN(PartialShape input, c.with_rank(0, 4));
  MR_TRY(c.with_rank(1, 4).status());
  MR_TRY(c.with_rank(2, 4).status());
  c.set_output(0, std::move(input));
  return ok_status();
}

Status max_pool_grad(GradientContext& c) {
  c.set(0, call("MaxPoolGrad", {c.input(0), c.output(0), c.gradient()}, pool_attrs(c)));
  return ok_status();
}

// Both are linear in the last input, and constant almost everywhere in the others.
Status max_pool_grad_grad(GradientContext& c) {
  c.set(0, zeros_like(c.input(0)));
  c.set(1, zeros_like(c.input(1)));
  c.set(2, call("MaxPoolGradGrad", {c.input(0), c.input(1), c.gradient()}, pool_attrs(c)));
  return ok_status();
}
Status max_pool_grad_grad_grad(GradientContext& c) {
  c.set(0, zeros_like(c.input(0)));
  c.set(1, zeros_like(c.input(1)));
  c.set(2, call("MaxPoolGrad", {c.input(0), c.input(1), c.gradient()}, pool_attrs(c)));
  return ok_status();
}

template <class T>
bool larger(T a, T b) {
  const auto x = static_cast<float>(a), y = static_cast<float>(b);
  return x > y || (x != x && y == y);
}
template <>
bool larger<double>(double a, double b) {
  return a > b || (a != a && b == b);
}

template <class T>
void max_pool(KernelContext& ctx, const PoolGeometry& g, const T* in, T* out) {
  g.for_each_output(ctx, [&](int64_t n, int64_t oy, int64_t ox, int64_t at) {
    const T* const image = in + n * g.image_size();
    T* const best = out + at;
    bool first = true;
    g.for_each_in_window(oy, ox, [&](int64_t offset) {
      const T* const x = image + offset;
      if (first) {
        std::copy_n(x, g.channels, best);
      } else {
        for (int64_t c = 0; c < g.channels; ++c) best[c] = larger(x[c], best[c]) ? x[c] : best[c];
      }
      first = false;
    });
  });
}

// Calls found(output element, input element) for the largest element of every window of image `n`,
// channels [from, to).
template <class T, class Found>
void for_each_largest(const PoolGeometry& g, const T* in, int64_t n, int64_t from, int64_t to,
                      Found found) {
  const AxisGeometry &h = g.height, &w = g.width;
  for (int64_t oy = 0; oy < h.output; ++oy) {
    for (int64_t ox = 0; ox < w.output; ++ox) {
      for (int64_t c = from; c < to; ++c) {
        int64_t best = -1;
        g.for_each_in_window(oy, ox, [&](int64_t offset) {
          const int64_t at = n * g.image_size() + offset + c;
          if (best < 0 || larger(in[at], in[best])) best = at;
        });
        if (best >= 0) found(((n * h.output + oy) * w.output + ox) * g.channels + c, best);
      }
    }
  }
}

enum class Kind : uint8_t { kPool, kGrad, kGradGrad };

template <class T, Kind kKind>
class MaxPoolKernel final : public PoolKernel<MaxPoolKernel<T, kKind>> {
 public:
  Status compute(KernelContext& ctx) const override {
    const WindowSpec& spec = this->spec_;
    const Tensor& input = ctx.input(0);
    const T* in = input.data<T>().data();
    if constexpr (kKind == Kind::kPool) {
      MR_TRY_ASSIGN(const PoolGeometry g, pool_geometry(spec, input.shape()));
      MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, g.output));
      max_pool(ctx, g, in, out->mutable_data<T>().data());
      return ok_status();
    } else {
      MR_TRY(pool_geometry(spec, input.shape(), &ctx.input(1).shape(), "orig_output").status());
      const Tensor& gradient = ctx.input(2);
      const bool forward = kKind == Kind::kGradGrad;
      MR_TRY_ASSIGN(const PoolGeometry g,
                    pool_geometry(spec, input.shape(), forward ? nullptr : &gradient.shape()));
      if (forward && !(gradient.shape() == input.shape())) {
        return invalid_argument("grad must have the shape of orig_input, ", input.shape(), ", got ",
                                gradient.shape());
      }
      MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, forward ? g.output : input.shape()));
      return scatter(ctx, g, in, gradient.data<T>().data(), *out);
    }
  }

 private:
  Status scatter(KernelContext& ctx, const PoolGeometry& g, const T* in, const T* gradient,
                 Tensor& out) const {
    constexpr int64_t kChannels = 32;
    using Sum = SumType<T>;
    T* const to = out.mutable_data<T>().data();
    // Windows overlap, so half precision is summed in float.
    Tensor sums;
    if constexpr (kKind == Kind::kGrad) {
      std::fill_n(to, out.num_elements(), T{});
      if constexpr (!std::is_same_v<T, Sum>) {
        MR_TRY_ASSIGN(sums, ctx.allocate_temp(dtype_of<Sum>, out.shape()));
        std::fill_n(sums.mutable_data<Sum>().data(), out.num_elements(), Sum{});
      } else {
        sums = out;
      }
    }
    Sum* const sum = sums.valid() ? sums.mutable_data<Sum>().data() : nullptr;
    const int64_t blocks = (g.channels + kChannels - 1) / kChannels;
    const double cost = g.work(static_cast<double>(g.height.output * g.width.output)) *
                        static_cast<double>(std::min(kChannels, g.channels));
    ctx.parallel_for(g.batch * blocks, cost, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t from = t % blocks * kChannels;
        for_each_largest(g, in, t / blocks, from, std::min(from + kChannels, g.channels),
                         [&](int64_t at_out, int64_t at_in) {
                           if constexpr (kKind == Kind::kGrad) {
                             sum[at_in] += static_cast<Sum>(gradient[at_out]);
                           } else {
                             to[at_out] = gradient[at_in];
                           }
                         });
      }
    });
    if constexpr (!std::is_same_v<T, Sum>) {
      if (sum != nullptr) {
        for (int64_t i = 0; i < out.num_elements(); ++i) to[i] = static_cast<T>(sum[i]);
      }
    }
    return ok_status();
  }
};

template <class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  (registry.kernel<Ts, MaxPoolKernel<Ts, Kind::kPool>>("MaxPool", DeviceKind::kCpu), ...);
  (registry.kernel<Ts, MaxPoolKernel<Ts, Kind::kGrad>>("MaxPoolGrad", DeviceKind::kCpu), ...);
  (registry.kernel<Ts, MaxPoolKernel<Ts, Kind::kGradGrad>>("MaxPoolGradGrad", DeviceKind::kCpu),
   ...);
}

}  // namespace

void register_max_pool(Registry& registry) {
  registry.add({.name = "MaxPool",
                .doc = "The largest element of every window.",
                .inputs = {{"input", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating, DType::kFloat}},
                .attrs = pool_attrs(),
                .traits = {.cost = 4},
                .shape = pool_shape,
                .gradient = max_pool_grad});
  registry.add({.name = "MaxPoolGrad",
                .doc = "The gradient of MaxPool: grad where the largest elements were.",
                .inputs = {{"orig_input", "T"}, {"orig_output", "T"}, {"grad", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating, DType::kFloat}},
                .attrs = pool_attrs(),
                .traits = {.cost = 8},
                .shape = max_pool_grad_shape,
                .gradient = max_pool_grad_grad});
  registry.add({.name = "MaxPoolGradGrad",
                .doc = "The gradient of MaxPoolGrad: of every window the element of grad where the "
                       "largest element of orig_input is.",
                .inputs = {{"orig_input", "T"}, {"orig_output", "T"}, {"grad", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating}},
                .attrs = pool_attrs(),
                .traits = {.cost = 8},
                .shape = pool_shape,
                .gradient = max_pool_grad_grad_grad});
  register_kernels(registry, FloatingTypes());
}

}  // namespace millrace
