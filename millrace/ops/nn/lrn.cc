#include <algorithm>
#include <memory>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/device_engine.h"
#include "millrace/ops/nn/lrn_loops.h"
#include "millrace/ops/nn/staged_rows.h"
#include "millrace/tensor/dispatch.h"

// Local response normalisation along the channels of an NHWC image:
// y[c] = x[c] norm[c]^-beta, norm[c] = bias + alpha sum of x[d]^2 over |d - c| <= depth_radius.

namespace millrace {
namespace {

using LrnTypes = TypeList<float, Half, BFloat16>;

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
    if (DeviceEngine* const device = device_engine(ctx)) {
      const auto raw = [&](int i) { return kGradient ? ctx.input(i).raw() : nullptr; };
      return device->lrn(ctx, x.dtype(), x.raw(), raw(2), raw(0), x.num_elements() / x.dim(3),
                         x.dim(3), p_.radius, p_.bias, p_.alpha, p_.beta, out->mutable_raw());
    }
    Tensor inputs[3];
    for (int i = 0; i < (kGradient ? 3 : 1); ++i) {
      MR_TRY_ASSIGN(inputs[i], as_compute_type<T>(ctx, ctx.input(i)));
    }
    MR_TRY_ASSIGN(Tensor result, compute_buffer<T>(ctx, *out));
    const int64_t channels = x.dim(3), pixels = x.num_elements() / channels;
    const float* const first = inputs[0].data<float>().data();
    float* const to = result.mutable_data<float>().data();
    // Pixels in blocks, each with memory of its own.
    constexpr int64_t kPixels = 64;
    const int64_t blocks = (pixels + kPixels - 1) / kPixels;
    const int64_t dims[] = {blocks, p_.scratch_size(channels)};
    MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
    MR_TRY_ASSIGN(Tensor scratch_tensor, ctx.allocate_temp(DType::kFloat, shape));
    float* const all_scratch = scratch_tensor.mutable_data<float>().data();
    const double cost = static_cast<double>(kPixels * channels) *
                        (1 + 0.1 * static_cast<double>(std::min(channels, p_.radius)));
    const LrnLoops& loops = isa_table<LrnLoops>();
    ctx.parallel_for(blocks, cost, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        float* const scratch = all_scratch + b * dims[1];
        for (int64_t i = b * kPixels; i < std::min(pixels, (b + 1) * kPixels); ++i) {
          const int64_t at = i * channels;
          if constexpr (kGradient) {
            loops.backward(p_, inputs[1].data<float>().data() + at,
                           inputs[2].data<float>().data() + at, first + at, channels, scratch,
                           to + at);
          } else {
            loops.forward(p_, first + at, channels, scratch, to + at);
          }
        }
      }
    });
    finish_output<T>(ctx, result, *out);
    return ok_status();
  }

 private:
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
