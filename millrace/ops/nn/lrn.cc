#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/tensor/dispatch.h"

// Local response normalisation along the channels of an NHWC image:
// y[c] = x[c] norm[c]^-beta, norm[c] = bias + alpha sum of x[d]^2 over |d - c| <= depth_radius.

namespace millrace {
namespace {

using LrnTypes = TypeList<float, Half, BFloat16>;

struct LrnParameters {
  int64_t radius = 5;
  float bias = 1, alpha = 1, beta = 0.5f;
};

Result<LrnParameters> read_parameters(const AttrMap& attrs) {
  LrnParameters p;
  MR_TRY_ASSIGN(p.radius, read_attr<int64_t>(attrs, "depth_radius"));
  MR_TRY_ASSIGN(p.bias, read_attr<float>(attrs, "bias"));
  MR_TRY_ASSIGN(p.alpha, read_attr<float>(attrs, "alpha"));
  MR_TRY_ASSIGN(p.beta, read_attr<float>(attrs, "beta"));
  if (p.radius < 0 || p.radius >= int64_t{1} << 31) {
    return invalid_argument("depth_radius must be between 0 and 2^31 - 1, got ", p.radius);
  }
  return p;
}

Status lrn_shape(ShapeContext& c) {
  MR_TRY(read_parameters(c.attrs()).status());
  PartialShape shape = PartialShape::of_rank(4);
  for (int i = 0; i < c.num_inputs(); ++i) {
    MR_TRY_ASSIGN(const PartialShape input, c.with_rank(i, 4));
    MR_TRY_ASSIGN(shape, shape.merge(input));
  }
  c.set_output(0, std::move(shape));
  return ok_status();
}

// The sum of x over |d - c| <= radius along the channels: a product with a matrix of ones around
// the diagonal. It is its own transpose.
class WindowSum {
 public:
  WindowSum(Expr x, int64_t radius) {
    OpBuilder& builder = *x.builder();
    const Expr channels = call("StridedSlice",
                               {shape_of(x), int32_vector(builder, {3}), int32_vector(builder, {4}),
                                int32_vector(builder, {1})},
                               {{"shrink_axis_mask", 1}});
    const Expr c = range(int32_scalar(builder, 0), channels, int32_scalar(builder, 1));
    const Expr distance =
        abs(expand_dims(c, int32_scalar(builder, 1)) - expand_dims(c, int32_scalar(builder, 0)));
    band_ =
        cast(less_equal(distance, int32_scalar(builder, static_cast<int32_t>(radius))), x.dtype());
  }
  Expr operator()(Expr x) const { return call("BatchMatMulV2", {x, band_}); }

 private:
  Expr band_;
};

// With n the norms and W the window sum, LRNGrad is f = dy n^-beta - 2 alpha beta x W(dy y / n).
Status lrn_grad_grad(GradientContext& c) {
  MR_TRY_ASSIGN(const int64_t radius, c.attr<int64_t>("depth_radius"));
  MR_TRY_ASSIGN(const double bias, c.attr<float>("bias"));
  MR_TRY_ASSIGN(const double alpha, c.attr<float>("alpha"));
  MR_TRY_ASSIGN(const double beta, c.attr<float>("beta"));
  const Expr dy = c.input(0), x = c.input(1), y = c.input(2), g = c.gradient();
  if (!x.valid()) return ok_status();
  const WindowSum window_sum(x, radius);
  const Expr n = window_sum(square(x)) * alpha + bias;
  const Expr power = pow(n, constant_like(n, -beta));
  const Expr scaled = window_sum(g * x) * (-2 * alpha * beta) / n;
  const Expr df_dn = -dy * (g * power * beta + scaled * y) / n;
  c.set(0, g * power + scaled * y);
  c.set(1, g * window_sum(dy * y / n) * (-2 * alpha * beta) + x * window_sum(df_dn) * (2 * alpha));
  c.set(2, scaled * dy);
  return ok_status();
}

Status lrn_grad(GradientContext& c) {
  AttrMap attrs;
  for (const char* name : {"depth_radius", "bias", "alpha", "beta"}) {
    attrs.set(name, c.attr_value(name));
  }
  c.set(0, call("LRNGrad", {c.gradient(), c.input(0), c.output(0)}, std::move(attrs)));
  return ok_status();
}

// norm[c] for one pixel.
template <class T>
void norms(const LrnParameters& p, const T* x, int64_t channels, float* norm) {
  for (int64_t c = 0; c < channels; ++c) {
    const int64_t first = std::max<int64_t>(0, c - p.radius);
    const int64_t last = std::min(channels, c + p.radius + 1);
    float sum = 0;
    for (int64_t d = first; d < last; ++d) {
      sum += static_cast<float>(x[d]) * static_cast<float>(x[d]);
    }
    norm[c] = p.bias + p.alpha * sum;
  }
}

// norm^-beta, with the usual exponents written out.
float power(float norm, float beta) {
  if (beta == 0.5f) return 1 / std::sqrt(norm);
  if (beta == 1.0f) return 1 / norm;
  return std::pow(norm, -beta);
}

template <class T, bool kGradient>
class LrnKernel final : public Kernel {
 public:
  explicit LrnKernel(const LrnParameters& parameters) : p_(parameters) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const LrnParameters parameters, read_parameters(node.attrs));
    return std::unique_ptr<Kernel>(std::make_unique<LrnKernel>(parameters));
  }

  Status compute(KernelContext& ctx) const override {
    const Tensor& x = ctx.input(kGradient ? 1 : 0);
    MR_TRY(expect_rank(ctx, kGradient ? 1 : 0, 4));
    if constexpr (kGradient) {
      MR_TRY(expect_same_shape(ctx, 0, 1));
      MR_TRY(expect_same_shape(ctx, 2, 1));
    }
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, x.shape()));
    if (x.num_elements() == 0) return ok_status();
    const int64_t channels = x.dim(3), pixels = x.num_elements() / channels;
    const T* const from = x.data<T>().data();
    T* const to = out->mutable_data<T>().data();
    const T* dy = nullptr;
    const T* y = nullptr;
    if constexpr (kGradient) {
      dy = ctx.input(0).template data<T>().data();
      y = ctx.input(2).template data<T>().data();
    }
    // Pixels in blocks, each with a row of norms of its own.
    constexpr int64_t kPixels = 64;
    const int64_t blocks = (pixels + kPixels - 1) / kPixels;
    const int64_t dims[] = {blocks, channels};
    MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
    MR_TRY_ASSIGN(Tensor norm_tensor, ctx.allocate_temp(DType::kFloat, shape));
    float* const norm_rows = norm_tensor.mutable_data<float>().data();
    const double cost = static_cast<double>(kPixels * channels) *
                        static_cast<double>(std::min<int64_t>(channels, 2 * p_.radius + 1));
    ctx.parallel_for(blocks, cost, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        float* const norm = norm_rows + b * channels;
        for (int64_t i = b * kPixels; i < std::min(pixels, (b + 1) * kPixels); ++i) {
          const int64_t at = i * channels;
          norms(p_, from + at, channels, norm);
          if constexpr (kGradient) {
            differentiate(from + at, y + at, dy + at, norm, channels, to + at);
          } else {
            for (int64_t c = 0; c < channels; ++c) {
              to[at + c] =
                  static_cast<T>(static_cast<float>(from[at + c]) * power(norm[c], p_.beta));
            }
          }
        }
      }
    });
    return ok_status();
  }

 private:
  // dx[d] = dy[d] norm[d]^-beta - 2 alpha beta x[d] sum of dy[c] y[c] / norm[c] over |d - c| <=
  // radius.
  void differentiate(const T* x, const T* y, const T* dy, const float* norm, int64_t channels,
                     T* dx) const {
    for (int64_t d = 0; d < channels; ++d) {
      float sum = 0;
      for (int64_t c = std::max<int64_t>(0, d - p_.radius);
           c < std::min(channels, d + p_.radius + 1); ++c) {
        sum += static_cast<float>(dy[c]) * static_cast<float>(y[c]) / norm[c];
      }
      dx[d] = static_cast<T>(static_cast<float>(dy[d]) * power(norm[d], p_.beta) -
                             2 * p_.alpha * p_.beta * static_cast<float>(x[d]) * sum);
    }
  }

  LrnParameters p_;
};

template <class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  (registry.kernel<Ts, LrnKernel<Ts, false>>("LRN", DeviceKind::kCpu), ...);
  (registry.kernel<Ts, LrnKernel<Ts, true>>("LRNGrad", DeviceKind::kCpu), ...);
}

}  // namespace

void register_lrn(Registry& registry) {
  const std::vector<OpSpec::Attr> attrs = {{"depth_radius", "int = 5"},
                                           {"bias", "float = 1"},
                                           {"alpha", "float = 1"},
                                           {"beta", "float = 0.5"}};
  registry.add({.name = "LRN",
                .doc = "Divides each element by a power of the squares of its neighbours along the "
                       "channels.",
                .inputs = {{"input", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", type_set_of<LrnTypes>, DType::kFloat}},
                .attrs = attrs,
                .traits = {.cost = 20},
                .shape = lrn_shape,
                .gradient = lrn_grad});
  registry.add({.name = "LRNGrad",
                .doc = "The gradient of LRN.",
                .inputs = {{"input_grads", "T"}, {"input_image", "T"}, {"output_image", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", type_set_of<LrnTypes>, DType::kFloat}},
                .attrs = attrs,
                .traits = {.cost = 40},
                .shape = lrn_shape,
                .gradient = lrn_grad_grad});
  register_kernels(registry, LrnTypes());
}

}  // namespace millrace
