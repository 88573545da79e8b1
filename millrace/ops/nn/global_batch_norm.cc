#include <cmath>
#include <memory>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/nn/staged_rows.h"
#include "millrace/tensor/dispatch.h"

// BatchNormWithGlobalNormalization and its gradient, of old graphs:
// (t - m) * rsqrt(v + variance_epsilon) * gamma + beta over the last of four dimensions, gamma
// only with scale_after_normalization.

namespace millrace {
namespace {

Result<PartialShape> with_channels(ShapeContext& c, int last_vector, int64_t* channels) {
  MR_TRY_ASSIGN(PartialShape t, c.with_rank(0, 4));
  PartialShape vector{t.dim(3)};
  for (int i = 1; i <= last_vector; ++i) {
    MR_TRY_ASSIGN(const PartialShape given, c.with_rank(i, 1));
    MR_TRY_ASSIGN(vector, vector.merge(given));
  }
  *channels = vector.dim(0);
  t.set_dim(3, *channels);
  return t;
}

Status global_norm_shape(ShapeContext& c) {
  int64_t channels = -1;
  MR_TRY_ASSIGN(PartialShape t, with_channels(c, 4, &channels));
  c.set_output(0, std::move(t));
  return ok_status();
}

Status global_norm_grad_shape(ShapeContext& c) {
  int64_t channels = -1;
  MR_TRY_ASSIGN(const PartialShape t, with_channels(c, 3, &channels));
  MR_TRY_ASSIGN(PartialShape dx, t.merge(c.input(4)));
  c.set_output(0, std::move(dx));
  for (int i = 1; i < 5; ++i) c.set_output(i, PartialShape{channels});
  return ok_status();
}

Status global_norm_grad(GradientContext& c) {
  const std::vector<Expr> grads =
      call_multi("BatchNormWithGlobalNormalizationGrad",
                 {c.input(0), c.input(1), c.input(2), c.input(4), c.gradient()},
                 {{"variance_epsilon", c.attr_value("variance_epsilon")},
                  {"scale_after_normalization", c.attr_value("scale_after_normalization")}});
  for (size_t i = 0; i < grads.size(); ++i) c.set(static_cast<int>(i), grads[i]);
  return ok_status();
}

// With r = rsqrt(v + epsilon), s = gamma or 1, D = sum(dy), P = sum(dy (t - m)), the results are
//   dx = dy s r, dm = -D s r, dv = -P s r^3 / 2, db = D, dg = P r (or 0).
Status global_norm_grad_grad(GradientContext& c) {
  MR_TRY_ASSIGN(const double epsilon, c.attr<float>("variance_epsilon"));
  MR_TRY_ASSIGN(const bool scales, c.attr<bool>("scale_after_normalization"));
  const Expr t = c.input(0), m = c.input(1), v = c.input(2), gamma = c.input(3), dy = c.input(4);
  if (!t.valid()) return ok_status();
  const Expr g = c.gradient(0), gm = c.gradient(1), gv = c.gradient(2), gb = c.gradient(3);
  const Expr gg = c.gradient(4);
  const Expr axes = int32_vector(c.builder(), {0, 1, 2});
  const Expr r = rsqrt(v + epsilon), rrr = r * square(r), centred = t - m;
  const Expr s = scales ? gamma : ones_like(gamma);
  const Expr d = sum(dy, axes), p = sum(dy * centred, axes), q = sum(g * dy, axes);
  // What multiplies D and P in the sum of all results.
  const Expr of_d = gb - gm * s * r;
  const Expr of_p = (scales ? gg * r : zeros_like(gg)) - gv * s * rrr * 0.5;
  const Expr dt = dy * of_p;
  c.set(0, dt);
  c.set(1, -(d * of_p));
  Expr dr = s * q - gm * s * d - gv * s * p * square(r) * 1.5;
  if (scales) {
    dr = dr + gg * p;
    c.set(3, r * q - gm * r * d - gv * p * rrr * 0.5);
  } else {
    c.set(3, zeros_like(gamma));
  }
  c.set(2, dr * rrr * -0.5);
  c.set(4, g * s * r + of_d + centred * of_p);
  return ok_status();
}

Status expect_channels(const KernelContext& ctx, int last_vector) {
  MR_TRY(expect_rank(ctx, 0, 4));
  const int64_t channels = ctx.input(0).dim(3);
  for (int i = 1; i <= last_vector; ++i) {
    const Shape& shape = ctx.input(i).shape();
    if (shape.rank() == 1 && shape[0] == channels) continue;
    return invalid_argument("input ", i, " must have one element for each of the ", channels,
                            " channels, got ", shape);
  }
  return ok_status();
}

template <class T, bool kGradient>
class GlobalNormKernel final : public Kernel {
 public:
  using C = ComputeType<T>;

  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    auto kernel = std::make_unique<GlobalNormKernel>();
    MR_TRY_ASSIGN(kernel->epsilon_, node.attr<float>("variance_epsilon"));
    MR_TRY_ASSIGN(kernel->scales_, node.attr<bool>("scale_after_normalization"));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status compute(KernelContext& ctx) const override {
    return kGradient ? backward(ctx) : forward(ctx);
  }

 private:
  static const T* data(KernelContext& ctx, int i) { return ctx.input(i).data<T>().data(); }

  // s * rsqrt(v + epsilon).
  C factor(KernelContext& ctx, int64_t c, int gamma) const {
    const C inverse = 1 / std::sqrt(static_cast<C>(data(ctx, 2)[c]) + static_cast<C>(epsilon_));
    return scales_ ? inverse * static_cast<C>(data(ctx, gamma)[c]) : inverse;
  }

  Status forward(KernelContext& ctx) const {
    MR_TRY(expect_channels(ctx, 4));
    const Tensor& t = ctx.input(0);
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, t.shape()));
    T* const to = out->mutable_data<T>().data();
    const int64_t channels = t.dim(3);
    for (int64_t c = 0; c < channels; ++c) {
      const C scale = factor(ctx, c, 4), mean = static_cast<C>(data(ctx, 1)[c]);
      const C beta = static_cast<C>(data(ctx, 3)[c]);
      for (int64_t i = c; i < t.num_elements(); i += channels) {
        to[i] = static_cast<T>((static_cast<C>(data(ctx, 0)[i]) - mean) * scale + beta);
      }
    }
    return ok_status();
  }

  Status backward(KernelContext& ctx) const {
    MR_TRY(expect_channels(ctx, 3));
    MR_TRY(expect_same_shape(ctx, 4, 0));
    const Tensor& t = ctx.input(0);
    const int64_t channels = t.dim(3);
    T* to[5];
    for (int i = 0; i < 5; ++i) {
      MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(i, i == 0 ? t.shape() : Shape{channels}));
      to[i] = out->mutable_data<T>().data();
    }
    for (int64_t c = 0; c < channels; ++c) {
      const C scale = factor(ctx, c, 3), mean = static_cast<C>(data(ctx, 1)[c]);
      const C spread = static_cast<C>(data(ctx, 2)[c]) + static_cast<C>(epsilon_);
      C sum = 0, product = 0;
      for (int64_t i = c; i < t.num_elements(); i += channels) {
        const C dy = static_cast<C>(data(ctx, 4)[i]);
        sum += dy;
        product += dy * (static_cast<C>(data(ctx, 0)[i]) - mean);
        to[0][i] = static_cast<T>(dy * scale);
      }
      to[1][c] = static_cast<T>(-sum * scale);
      to[2][c] = static_cast<T>(product * scale / spread * C(-0.5));
      to[3][c] = static_cast<T>(sum);
      to[4][c] = static_cast<T>(scales_ ? product / std::sqrt(spread) : C(0));
    }
    return ok_status();
  }

  float epsilon_ = 0;
  bool scales_ = false;
};

template <class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  (registry.kernel<Ts, GlobalNormKernel<Ts, false>>("BatchNormWithGlobalNormalization",
                                                    DeviceKind::kCpu),
   ...);
  (registry.kernel<Ts, GlobalNormKernel<Ts, true>>("BatchNormWithGlobalNormalizationGrad",
                                                   DeviceKind::kCpu),
   ...);
}

}  // namespace

void register_global_batch_norm(Registry& registry) {
  const std::vector<OpSpec::Attr> attrs = {{"variance_epsilon", "float"},
                                           {"scale_after_normalization", "bool"}};
  registry.add({.name = "BatchNormWithGlobalNormalization",
                .doc = "Normalises every channel of t by the mean m and the variance v.",
                .inputs = {{"t", "T"}, {"m", "T"}, {"v", "T"}, {"beta", "T"}, {"gamma", "T"}},
                .outputs = {{"result", "T"}},
                .types = {{"T", kNumberTypes}},
                .attrs = attrs,
                .traits = {.cost = 2},
                .shape = global_norm_shape,
                .gradient = global_norm_grad,
                .deprecated_since = 9,
                .deprecation = "Use tf.nn.batch_normalization()"});
  registry.add({.name = "BatchNormWithGlobalNormalizationGrad",
                .doc = "The gradient of BatchNormWithGlobalNormalization.",
                .inputs = {{"t", "T"}, {"m", "T"}, {"v", "T"}, {"gamma", "T"}, {"backprop", "T"}},
                .outputs = {{"dx", "T"}, {"dm", "T"}, {"dv", "T"}, {"db", "T"}, {"dg", "T"}},
                .types = {{"T", kNumberTypes}},
                .attrs = attrs,
                .traits = {.cost = 3},
                .shape = global_norm_grad_shape,
                .gradient = global_norm_grad_grad,
                .deprecated_since = 9,
                .deprecation = "Use tf.nn.batch_normalization()"});
  register_kernels(registry, FloatingTypes());
}

}  // namespace millrace
