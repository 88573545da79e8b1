#include <algorithm>
#include <memory>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/size_rules.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/nn/pooling.h"
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

template <class T>
bool larger(T a, T b) {
  const auto x = static_cast<ComputeType<T>>(a), y = static_cast<ComputeType<T>>(b);
  return x > y || (x != x && y == y);
}

template <class T, int N>
void max_pool(KernelContext& ctx, const PoolGeometry<N>& g, const T* in, T* out) {
  g.for_each_output(ctx, [&](int64_t n, const auto& at, int64_t place) {
    const T* const image = in + n * g.image_size();
    T* const best = out + place;
    bool first = true;
    g.for_each_in_window(at, [&](int64_t offset) {
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
template <class T, int N, class Found>
void for_each_largest(const PoolGeometry<N>& g, const T* in, int64_t n, int64_t from, int64_t to,
                      Found found) {
  const int64_t image = n * g.image_size(), output = n * g.output_size();
  g.for_each_output([&](const auto& at, int64_t place) {
    for (int64_t c = from; c < to; ++c) {
      int64_t best = -1;
      g.for_each_in_window(at, [&](int64_t offset) {
        const int64_t element = image + offset + c;
        if (best < 0 || larger(in[element], in[best])) best = element;
      });
      if (best >= 0) found(output + place + c, best);
    }
  });
}

enum class Kind : uint8_t { kPool, kGrad, kGradGrad };

template <class T, int N, Kind kKind>
class MaxPoolKernel final : public PoolKernel<MaxPoolKernel<T, N, kKind>, N> {
 public:
  Status compute(KernelContext& ctx) const override {
    const WindowSpec<N>& spec = this->spec_;
    const Tensor& input = ctx.input(0);
    const T* in = input.data<T>().data();
    if constexpr (kKind == Kind::kPool) {
      MR_TRY_ASSIGN(const PoolGeometry<N> g, pool_geometry(spec, input.shape()));
      MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, g.output));
      if (out->num_elements() > 0) max_pool(ctx, g, in, out->mutable_data<T>().data());
      return ok_status();
    } else {
      MR_TRY(pool_geometry(spec, input.shape(), &ctx.input(1).shape(), "orig_output").status());
      const Tensor& gradient = ctx.input(2);
      const bool forward = kKind == Kind::kGradGrad;
      MR_TRY_ASSIGN(const PoolGeometry<N> g,
                    pool_geometry(spec, input.shape(), forward ? nullptr : &gradient.shape()));
      if (forward && !(gradient.shape() == input.shape())) {
        return invalid_argument("grad must have the shape of orig_input, ", input.shape(), ", got ",
                                gradient.shape());
      }
      MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, forward ? g.output : input.shape()));
      if (out->num_elements() == 0) return ok_status();
      return scatter(ctx, g, in, gradient.data<T>().data(), *out);
    }
  }

 private:
  Status scatter(KernelContext& ctx, const PoolGeometry<N>& g, const T* in, const T* gradient,
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
    const int64_t pixels = g.output_size() / g.channels;
    const double cost =
        g.work(static_cast<double>(pixels)) * static_cast<double>(std::min(kChannels, g.channels));
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

template <int N, class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  (registry.kernel<Ts, MaxPoolKernel<Ts, N, Kind::kPool>>(Names<N>::kPool, DeviceKind::kCpu), ...);
  (registry.kernel<Ts, MaxPoolKernel<Ts, N, Kind::kGradGrad>>(Names<N>::kGradGrad,
                                                              DeviceKind::kCpu),
   ...);
  const auto add_grad = [&](DType type, KernelFactory factory) {
    KernelDef def{.op = Names<N>::kGrad, .constraints = {{"T", {type}}}, .factory = factory};
    if (N == 3) def.constraints.push_back({"TInput", {type}});
    registry.kernel(std::move(def));
  };
  (add_grad(dtype_of<Ts>, &MaxPoolKernel<Ts, N, Kind::kGrad>::make), ...);
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
                .traits = {.cost = cost},
                .shape = pool_shape<N>,
                .gradient = max_pool_grad<N>});
  registry.add({.name = Names<N>::kGrad,
                .doc = str_cat("The gradient of ", Names<N>::kPool,
                               ": grad where the largest elements were."),
                .inputs = {{"orig_input", input_type}, {"orig_output", input_type}, {"grad", "T"}},
                .outputs = {{"output", "T"}},
                .types = grad_types,
                .attrs = pool_attrs<N>(),
                .traits = {.cost = 2 * cost},
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
                .traits = {.cost = 2 * cost},
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
