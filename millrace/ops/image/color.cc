#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/tensor/dispatch.h"

// RGBToHSV, HSVToRGB, AdjustHue, AdjustSaturation (pixels of three channels) and AdjustContrastv2.

namespace millrace {
namespace {

using AdjustTypes = TypeList<float, Half, BFloat16>;

Status pixels_shape(ShapeContext& c) {
  // Colours are the last dimension of one or more, adjusted images have three.
  const bool adjusts = c.num_inputs() == 2;
  MR_TRY_ASSIGN(PartialShape images, c.with_rank_at_least(0, adjusts ? 3 : 1));
  if (adjusts) MR_TRY(c.with_rank(1, 0).status());
  if (images.rank_known()) {
    const int last = images.rank() - 1;
    if (images.dim_known(last) && images.dim(last) != 3) {
      return invalid_argument("pixels must have 3 channels, got ", images);
    }
    images.set_dim(last, 3);
  }
  c.set_output(0, std::move(images));
  return ok_status();
}

Status contrast_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape images, c.with_rank_at_least(0, 3));
  MR_TRY(c.with_rank(1, 0).status());
  c.set_output(0, std::move(images));
  return ok_status();
}

// y = (x - mean) * factor + mean.
Status contrast_grad(GradientContext& c) {
  const Expr x = c.input(0), dy = c.gradient();
  if (!x.valid()) return ok_status();
  const Expr axes = int32_vector(c.builder(), {-3, -2});
  const auto mean = [&](Expr e) { return call("Mean", {e, axes}, {{"keep_dims", true}}); };
  const Expr factor = cast(c.input(1), x.dtype());
  c.set(0, dy * factor + mean(dy) * (1.0 - factor));
  const Expr terms = cast(dy * (x - mean(x)), DType::kFloat);
  const Expr all = range(int32_scalar(c.builder(), 0), rank(x), int32_scalar(c.builder(), 1));
  c.set(1, sum(terms, all));
  return ok_status();
}

// Hue, saturation and value are functions of the largest and the smallest channel and, for the hue,
// of the difference of the two channels besides the largest.
Status rgb_to_hsv_grad(GradientContext& c) {
  const Expr images = c.input(0);
  if (!images.valid()) return ok_status();
  const auto channels = [](Expr x) {
    return call_multi("Unpack", {x}, {{"num", 3}, {"axis", -1}});
  };
  const std::vector<Expr> rgb = channels(images), hsv = channels(c.gradient());
  if (rgb.empty() || hsv.empty()) return ok_status();
  const auto divide = [](Expr x, Expr by) { return call("DivNoNan", {x, by}); };
  const auto mask = [&](Expr condition) { return cast(condition, images.dtype()); };
  const auto at_least = [&](size_t i, size_t k) { return mask(greater_equal(rgb[i], rgb[k])); };
  // Of equal channels, the largest is the first and the smallest the last.
  const Expr red = at_least(0, 1) * at_least(0, 2);
  const Expr green = (1.0 - red) * at_least(1, 2);
  const Expr is_largest[] = {red, green, 1.0 - red - green};
  const Expr last = at_least(0, 2) * at_least(1, 2);
  const Expr middle = (1.0 - last) * at_least(0, 1);
  const Expr is_smallest[] = {1.0 - last - middle, middle, last};
  Expr largest = zeros_like(rgb[0]), smallest = largest, difference = largest;
  for (size_t i = 0; i < 3; ++i) {
    largest = largest + is_largest[i] * rgb[i];
    smallest = smallest + is_smallest[i] * rgb[i];
    difference = difference + is_largest[i] * (rgb[(i + 1) % 3] - rgb[(i + 2) % 3]);
  }
  const Expr range = largest - smallest;
  const Expr d_difference = divide(hsv[0], range) / 6.0;
  const Expr d_range = -divide(d_difference * difference, range);
  const Expr d_saturation = hsv[1] * mask(greater(largest, zeros_like(largest)));
  const Expr d_smallest = -d_range - divide(d_saturation, largest);
  const Expr d_largest =
      hsv[2] + d_range + divide(divide(d_saturation * smallest, largest), largest);
  std::vector<Expr> gradients;
  for (size_t i = 0; i < 3; ++i) {
    gradients.push_back(is_largest[i] * d_largest + is_smallest[i] * d_smallest +
                        (is_largest[(i + 2) % 3] - is_largest[(i + 1) % 3]) * d_difference);
  }
  c.set(0, call("Pack", gradients, {{"axis", -1}}));
  return ok_status();
}

template <class C>
struct Pixel {
  C a, b, c;
};

template <class C>
Pixel<C> rgb_to_hsv(Pixel<C> rgb) {
  const auto [r, g, b] = rgb;
  const C value = std::max({r, g, b}), range = value - std::min({r, g, b});
  const C saturation = value > 0 ? range / value : 0;
  const C norm = 1 / (6 * range);
  C hue = r == value   ? norm * (g - b)
          : g == value ? norm * (b - r) + C(2) / 6
                       : norm * (r - g) + C(4) / 6;
  if (!(range > 0)) hue = 0;
  return {hue < 0 ? hue + 1 : hue, saturation, value};
}

template <class C>
Pixel<C> hsv_to_rgb(Pixel<C> hsv) {
  const C at = hsv.a * 6, s = hsv.b, v = hsv.c;
  const auto mix = [&](C colour) { return ((1 - s) + s * std::clamp<C>(colour, 0, 1)) * v; };
  return {mix(std::abs(at - 3) - 1), mix(2 - std::abs(at - 2)), mix(2 - std::abs(at - 4))};
}

// The hue moved around the circle by `delta`.
float turned(float hue, float delta) {
  const float sum = std::fmod(hue + delta, 1.0F);
  return sum < 0 ? sum + 1 : sum;
}

struct ToHsv {
  template <class C>
  static Pixel<C> apply(Pixel<C> p, float) {
    return rgb_to_hsv(p);
  }
};
struct ToRgb {
  template <class C>
  static Pixel<C> apply(Pixel<C> p, float) {
    return hsv_to_rgb(p);
  }
};
struct AdjustHue {
  static Pixel<float> apply(Pixel<float> p, float delta) {
    Pixel<float> hsv = rgb_to_hsv(p);
    hsv.a = turned(hsv.a, delta);
    return hsv_to_rgb(hsv);
  }
};
struct AdjustSaturation {
  static Pixel<float> apply(Pixel<float> p, float scale) {
    Pixel<float> hsv = rgb_to_hsv(p);
    hsv.b = std::clamp(hsv.b * scale, 0.0F, 1.0F);
    return hsv_to_rgb(hsv);
  }
};

template <class T, class Op>
Status convert_pixels(KernelContext& ctx) {
  using C = ComputeType<T>;
  const Tensor& images = ctx.input(0);
  const bool adjusts = ctx.num_inputs() == 2;
  const int rank = images.rank();
  if (rank < (adjusts ? 3 : 1) || images.dim(rank - 1) != 3) {
    return invalid_argument("images must have rank ", adjusts ? 3 : 1,
                            " or more and 3 channels, got ", images.shape());
  }
  float parameter = 0;
  if (adjusts) {
    MR_TRY(expect_rank(ctx, 1, 0));
    parameter = ctx.input(1).data<float>()[0];
  }
  MR_TRY_ASSIGN(Tensor * out, ctx.forward_or_allocate_output({0}, 0, images.shape()));
  const T* const from = images.data<T>().data();
  T* const to = out->mutable_data<T>().data();
  ctx.parallel_for(images.num_elements() / 3, 10, [&](int64_t begin, int64_t end) {
    for (int64_t i = 3 * begin; i < 3 * end; i += 3) {
      const Pixel<C> p = {static_cast<C>(from[i]), static_cast<C>(from[i + 1]),
                          static_cast<C>(from[i + 2])};
      const Pixel<C> q = Op::apply(p, parameter);
      to[i] = static_cast<T>(q.a);
      to[i + 1] = static_cast<T>(q.b);
      to[i + 2] = static_cast<T>(q.c);
    }
  });
  return ok_status();
}

template <class T>
Status adjust_contrast(KernelContext& ctx) {
  const Tensor& images = ctx.input(0);
  const int rank = images.rank();
  if (rank < 3) return invalid_argument("images must have rank 3 or more, got ", images.shape());
  MR_TRY(expect_rank(ctx, 1, 0));
  const float factor = ctx.input(1).data<float>()[0];
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, images.shape()));
  if (images.num_elements() == 0) return ok_status();
  const int64_t channels = images.dim(rank - 1);
  const int64_t size = images.dim(rank - 3) * images.dim(rank - 2) * channels;
  const int64_t batch = images.num_elements() / size;
  const T* const from = images.data<T>().data();
  T* const to = out->mutable_data<T>().data();
  ctx.parallel_for(batch * channels, static_cast<double>(2 * (size / channels)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t t = begin; t < end; ++t) {
                       const int64_t first = t / channels * size + t % channels;
                       double sum = 0;
                       for (int64_t i = 0; i < size; i += channels) {
                         sum += static_cast<float>(from[first + i]);
                       }
                       const float mean =
                           static_cast<float>(sum / static_cast<double>(size / channels));
                       for (int64_t i = 0; i < size; i += channels) {
                         const float x = static_cast<float>(from[first + i]);
                         to[first + i] = static_cast<T>((x - mean) * factor + mean);
                       }
                     }
                   });
  return ok_status();
}

template <class Op, class... Ts>
void register_kernels(Registry& registry, const char* op, TypeList<Ts...>) {
  (registry.kernel<Ts>(op, DeviceKind::kCpu, &convert_pixels<Ts, Op>), ...);
}

template <class... Ts>
void register_contrast(Registry& registry, TypeList<Ts...>) {
  (registry.kernel<Ts>("AdjustContrastv2", DeviceKind::kCpu, &adjust_contrast<Ts>), ...);
}

constexpr const char* kNoGradient = "prepares images for training or for people";

}  // namespace

void register_color(Registry& registry) {
  const auto convert = [&](const char* name, const char* doc, GradientRule gradient) {
    registry.add(
        {.name = name,
         .doc = doc,
         .inputs = {{"images", "T"}},
         .outputs = {{"output", "T"}},
         .types = {{"T", kFloating, DType::kFloat}},
         .traits = {.cannot_differentiate = gradient == nullptr, .may_alias = 1, .cost = 4},
         .shape = pixels_shape,
         .gradient = gradient,
         .no_gradient = gradient == nullptr ? kNoGradient : ""});
  };
  convert("RGBToHSV", "Pixels of red, green and blue as hue, saturation and value.",
          rgb_to_hsv_grad);
  convert("HSVToRGB", "Pixels of hue, saturation and value as red, green and blue.", nullptr);
  const auto adjust = [&](const char* name, const char* doc, const char* parameter) {
    registry.add({.name = name,
                  .doc = doc,
                  .inputs = {{"images", "T"}, {parameter, "float"}},
                  .outputs = {{"output", "T"}},
                  .types = {{"T", type_set_of<AdjustTypes>, DType::kFloat}},
                  .traits = {.may_alias = 1, .cost = 8},
                  .shape = pixels_shape,
                  .no_gradient = kNoGradient});
  };
  adjust("AdjustHue", "Turns the hue of every pixel by delta, a part of the whole circle.",
         "delta");
  adjust("AdjustSaturation", "Multiplies the saturation of every pixel by scale.", "scale");
  registry.add({.name = "AdjustContrastv2",
                .doc = "Moves every pixel away from the mean of its channel by contrast_factor.",
                .inputs = {{"images", "T"}, {"contrast_factor", "float"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", type_set_of<AdjustTypes>, DType::kFloat}},
                .traits = {.cost = 2},
                .shape = contrast_shape,
                .gradient = contrast_grad});
  register_kernels<ToHsv>(registry, "RGBToHSV", FloatingTypes());
  register_kernels<ToRgb>(registry, "HSVToRGB", FloatingTypes());
  register_kernels<AdjustHue>(registry, "AdjustHue", AdjustTypes());
  register_kernels<AdjustSaturation>(registry, "AdjustSaturation", AdjustTypes());
  register_contrast(registry, AdjustTypes());
}

}  // namespace millrace
