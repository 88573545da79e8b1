#include "millrace/ops/image/resize_taps.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

// How many elements of the original axis one of the resized axis stands for. P is what positions
// are computed in.
template <class P>
P resize_scale(ResizeCenters centers, int64_t original, int64_t resized) {
  return centers.align_corners && resized > 1
             ? static_cast<P>(original - 1) / static_cast<P>(resized - 1)
             : static_cast<P>(original) / static_cast<P>(resized);
}

int64_t clamped(int64_t i, int64_t size) { return std::clamp<int64_t>(i, 0, size - 1); }

// Rounding to 1/1024 of an element, as TensorFlow's table of coefficients does.
constexpr float kBicubicSteps = 1024;

// Keys' cubic with parameter a: at a distance of x <= 1, and of 1 + x.
float near_weight(float a, float x) { return ((a + 2) * x - (a + 3)) * x * x + 1; }
float far_weight(float a, float x) {
  const float d = x + 1;
  return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
}

template <class P>
void bicubic_taps(P at, bool half_pixel, int64_t size, int64_t* index, float* weight) {
  const float a = half_pixel ? -0.5F : -0.75F;
  const int64_t base = static_cast<int64_t>(std::floor(at));
  const float x =
      static_cast<float>(std::lrint((at - static_cast<P>(base)) * kBicubicSteps)) / kBicubicSteps;
  weight[0] = far_weight(a, x);
  weight[1] = near_weight(a, x);
  weight[2] = near_weight(a, 1 - x);
  weight[3] = far_weight(a, 1 - x);
  float sum = 0;
  for (int64_t k = 0; k < 4; ++k) {
    index[k] = clamped(base - 1 + k, size);
    // Outside the image nothing counts, and what is left counts as the whole.
    if (half_pixel && index[k] != base - 1 + k) weight[k] = 0;
    sum += weight[k];
  }
  if (!half_pixel || std::abs(sum) < 1e-30F) return;
  for (int64_t k = 0; k < 4; ++k) weight[k] /= sum;
}

// The part of each element that lies in [from, to).
template <class P>
void area_taps(P from, P to, int64_t taps, int64_t size, int64_t* index, float* weight) {
  const int64_t base = static_cast<int64_t>(std::floor(from));
  for (int64_t k = 0; k < taps; ++k) {
    const P low = static_cast<P>(base + k), high = low + 1;
    index[k] = clamped(base + k, size);
    // An axis of one element with aligned corners is all at one place.
    const P covered = std::max(P{0}, std::min(high, to) - std::max(low, from));
    weight[k] = static_cast<float>(to > from ? covered / (to - from) : static_cast<P>(k == 0));
  }
}

int64_t count_taps(ResizeMethod method, double scale) {
  switch (method) {
    case ResizeMethod::kNearest:
      return 1;
    case ResizeMethod::kBilinear:
      return 2;
    case ResizeMethod::kBicubic:
      return 4;
    case ResizeMethod::kArea:
      break;
  }
  return static_cast<int64_t>(std::ceil(scale)) + 1;
}

template <class P>
void fill_taps(ResizeMethod method, ResizeCenters centers, ResizeTaps& axis) {
  const P scale = resize_scale<P>(centers, axis.original, axis.resized);
  int64_t* index = axis.indices.mutable_data<int64_t>().data();
  float* weight = axis.weights.mutable_data<float>().data();
  for (int64_t i = 0; i < axis.resized; ++i, index += axis.taps, weight += axis.taps) {
    const P o = static_cast<P>(i), half = static_cast<P>(0.5);
    const P at = centers.half_pixel ? (o + half) * scale - half : o * scale;
    switch (method) {
      case ResizeMethod::kNearest: {
        const P from = centers.half_pixel ? (o + half) * scale : o * scale;
        index[0] = clamped(
            static_cast<int64_t>(centers.align_corners ? std::round(from) : std::floor(from)),
            axis.original);
        weight[0] = 1;
        break;
      }
      case ResizeMethod::kBilinear: {
        const int64_t base = static_cast<int64_t>(std::floor(at));
        index[0] = clamped(base, axis.original);
        index[1] = clamped(static_cast<int64_t>(std::ceil(at)), axis.original);
        weight[1] = static_cast<float>(at - static_cast<P>(base));
        weight[0] = 1 - weight[1];
        break;
      }
      case ResizeMethod::kBicubic:
        bicubic_taps(at, centers.half_pixel, axis.original, index, weight);
        break;
      case ResizeMethod::kArea:
        area_taps(at, static_cast<P>(i + 1) * scale, axis.taps, axis.original, index, weight);
        break;
    }
  }
}

}  // namespace

Result<ResizeCenters> read_resize_centers(const AttrMap& attrs) {
  ResizeCenters centers;
  MR_TRY_ASSIGN(centers.align_corners, read_attr<bool>(attrs, "align_corners"));
  if (attrs.find("half_pixel_centers") != nullptr) {
    MR_TRY_ASSIGN(centers.half_pixel, read_attr<bool>(attrs, "half_pixel_centers"));
  }
  if (centers.align_corners && centers.half_pixel) {
    return invalid_argument("half_pixel_centers must be false if align_corners is true");
  }
  return centers;
}

Result<ResizeTaps> make_resize_taps(KernelContext& ctx, ResizeMethod method, ResizeCenters centers,
                                    int64_t original, int64_t resized) {
  // TensorFlow's floats, unless they cannot tell the elements apart.
  constexpr int64_t kMostInFloat = int64_t{1} << 24;
  const bool wide = std::max(original, resized) > kMostInFloat;
  const double scale = wide ? resize_scale<double>(centers, original, resized)
                            : resize_scale<float>(centers, original, resized);
  ResizeTaps axis{.taps = count_taps(method, scale), .original = original, .resized = resized};
  const int64_t dims[] = {resized, axis.taps};
  MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
  MR_TRY_ASSIGN(axis.indices, ctx.allocate_temp(DType::kInt64, shape));
  MR_TRY_ASSIGN(axis.weights, ctx.allocate_temp(DType::kFloat, shape));
  if (wide) {
    fill_taps<double>(method, centers, axis);
  } else {
    fill_taps<float>(method, centers, axis);
  }
  return axis;
}

}  // namespace millrace
