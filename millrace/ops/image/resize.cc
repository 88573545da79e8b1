#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/size_rules.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/image/resize_taps.h"
#include "millrace/tensor/dispatch.h"

// ResizeNearestNeighbor, ResizeBilinear, ResizeBicubic, ResizeArea and their gradients. Each is
// linear in the image, and so is its gradient: the transposed map.

namespace millrace {
namespace {

using ImageTypes =
    ConcatTypes<FloatingTypes, TypeList<int8_t, uint8_t, int16_t, uint16_t, int32_t, int64_t>>;
using NearestGradTypes = ConcatTypes<FloatingTypes, TypeList<uint8_t, int8_t, int32_t>>;

// The one check of sizes: `images`, of rank 4, resized to `height` and `width`. A size of -1 is not
// known.
Status check_sizes(const PartialShape& images, int64_t height, int64_t width) {
  const auto possible = [](int64_t size) { return size != 0 && size < int64_t{1} << 31; };
  if (!possible(height) || !possible(width)) {
    return invalid_argument("output dimensions must be positive and below 2^31, got [", height, ",",
                            width, "]");
  }
  if (possible(images.dim(1)) && possible(images.dim(2))) return ok_status();
  return invalid_argument("images must be of non-zero size and below 2^31, got ", images);
}

// A batch like `images` of the size that the vector in input `i` says.
Result<PartialShape> resized_shape(ShapeContext& c, const PartialShape& images, int i) {
  MR_TRY_ASSIGN(const PartialShape size, sizes_input(c, i, 2));
  MR_TRY(check_sizes(images, size.dim(0), size.dim(1)));
  return PartialShape({images.dim(0), size.dim(0), size.dim(1), images.dim(3)});
}

Status resize_shape(ShapeContext& c) {
  MR_TRY(read_resize_centers(c.attrs()).status());
  MR_TRY_ASSIGN(const PartialShape images, c.with_rank(0, 4));
  MR_TRY_ASSIGN(PartialShape out, resized_shape(c, images, 1));
  c.set_output(0, std::move(out));
  return ok_status();
}

Status resize_grad_shape(ShapeContext& c) {
  MR_TRY(read_resize_centers(c.attrs()).status());
  MR_TRY_ASSIGN(const PartialShape grads, c.with_rank(0, 4));
  MR_TRY_ASSIGN(const PartialShape image, c.with_rank(1, 4));
  MR_TRY(check_sizes(grads, image.dim(1), image.dim(2)));
  MR_TRY_ASSIGN(PartialShape out, PartialShape({grads.dim(0), -1, -1, grads.dim(3)}).merge(image));
  c.set_output(0, std::move(out));
  return ok_status();
}

// Height and width of a batch, as an int32 vector.
Expr size_of_images(const GradientContext& c, Expr images) {
  OpBuilder& builder = c.builder();
  return call("StridedSlice", {shape_of(images), int32_vector(builder, {1}),
                               int32_vector(builder, {3}), int32_vector(builder, {1})});
}

AttrMap center_attrs(const GradientContext& c, bool half_pixel) {
  AttrMap attrs = {{"align_corners", c.attr_value("align_corners")}};
  if (half_pixel) attrs.set("half_pixel_centers", c.attr_value("half_pixel_centers"));
  return attrs;
}

// The map itself, of images that may be of integers.
Status resize_gradient(GradientContext& c, const char* backward, bool half_pixel = true) {
  if (!kFloating.contains(c.input_type(0))) return ok_status();
  c.set(0, call(backward, {c.gradient(), c.input(0)}, center_attrs(c, half_pixel)));
  return ok_status();
}
Status resize_gradient_of_gradient(GradientContext& c, const char* forward,
                                   bool half_pixel = true) {
  c.set(0,
        call(forward, {c.gradient(), size_of_images(c, c.input(0))}, center_attrs(c, half_pixel)));
  return ok_status();
}

Status bilinear_grad(GradientContext& c) { return resize_gradient(c, "ResizeBilinearGrad"); }
Status bilinear_grad_grad(GradientContext& c) {
  return resize_gradient_of_gradient(c, "ResizeBilinear");
}
Status bicubic_grad(GradientContext& c) {
  // There is no kernel of the gradient for half precision.
  if (c.input_type(0) != DType::kFloat && c.input_type(0) != DType::kDouble) {
    if (!kFloating.contains(c.input_type(0))) return ok_status();
    const Expr image = cast(c.input(0), DType::kFloat);
    const Expr dx = call("ResizeBicubicGrad", {c.gradient(), image}, center_attrs(c, true));
    c.set(0, cast(dx, c.input_type(0)));
    return ok_status();
  }
  return resize_gradient(c, "ResizeBicubicGrad");
}
Status bicubic_grad_grad(GradientContext& c) {
  return resize_gradient_of_gradient(c, "ResizeBicubic");
}
Status area_grad(GradientContext& c) { return resize_gradient(c, "ResizeAreaGrad", false); }
Status area_grad_grad(GradientContext& c) {
  return resize_gradient_of_gradient(c, "ResizeArea", false);
}
Status nearest_grad(GradientContext& c) {
  if (!kFloating.contains(c.input_type(0))) return ok_status();
  c.set(0, call("ResizeNearestNeighborGrad", {c.gradient(), size_of_images(c, c.input(0))},
                center_attrs(c, true)));
  return ok_status();
}
Status nearest_grad_grad(GradientContext& c) {
  return resize_gradient_of_gradient(c, "ResizeNearestNeighbor");
}

Result<Shape> resized(const Shape& images, int64_t height, int64_t width) {
  if (images.rank() != 4) return invalid_argument("images must have rank 4, got ", images);
  const int64_t dims[] = {images[0], height, width, images[3]};
  MR_TRY_ASSIGN(Shape shape, Shape::make(dims));
  MR_TRY(check_sizes(images, height, width));
  return shape;
}

Result<Shape> read_sizes(KernelContext& ctx, const Shape& images) {
  MR_TRY_ASSIGN(const std::vector<int64_t> size, ctx.int_vector_input(1));
  if (size.size() != 2) return invalid_argument("size must have 2 elements, got ", size.size());
  return resized(images, size[0], size[1]);
}

// Both axes of images of one size.
struct Plan {
  ResizeTaps height, width;
  int64_t batch = 0, channels = 0;

  static Result<Plan> make(KernelContext& ctx, ResizeMethod method, ResizeCenters centers,
                           const Shape& original, const Shape& resized) {
    Plan plan{.batch = original[0], .channels = original[3]};
    MR_TRY_ASSIGN(plan.height, make_resize_taps(ctx, method, centers, original[1], resized[1]));
    MR_TRY_ASSIGN(plan.width, make_resize_taps(ctx, method, centers, original[2], resized[2]));
    return plan;
  }
  int64_t image_size() const { return height.original * width.original * channels; }
  double cost() const { return static_cast<double>(height.taps * width.taps); }
};

// One pixel of a bilinear resize, without rounding where neighbours are equal.
template <class T>
void bilinear_pixel(const Plan& p, const T* image, int64_t y, int64_t x, float* out) {
  const int64_t* const rows = p.height.index(y);
  const int64_t* const columns = p.width.index(x);
  const float ty = p.height.weight(y)[1], tx = p.width.weight(x)[1];
  const T* const top = image + rows[0] * p.width.original * p.channels;
  const T* const bottom = image + rows[1] * p.width.original * p.channels;
  const int64_t left = columns[0] * p.channels, right = columns[1] * p.channels;
  for (int64_t c = 0; c < p.channels; ++c) {
    const float a = static_cast<float>(top[left + c]), b = static_cast<float>(top[right + c]);
    const float d = static_cast<float>(bottom[left + c]), e = static_cast<float>(bottom[right + c]);
    const float upper = a + (b - a) * tx, lower = d + (e - d) * tx;
    out[c] = upper + (lower - upper) * ty;
  }
}

template <class T>
void weighted_pixel(const Plan& p, const T* image, int64_t y, int64_t x, float* out) {
  std::fill_n(out, p.channels, 0.0F);
  for (int64_t j = 0; j < p.height.taps; ++j) {
    const float wy = p.height.weight(y)[j];
    const T* const row = image + p.height.index(y)[j] * p.width.original * p.channels;
    for (int64_t i = 0; i < p.width.taps; ++i) {
      const float w = wy * p.width.weight(x)[i];
      const T* const from = row + p.width.index(x)[i] * p.channels;
      if (w == 0) continue;
      for (int64_t c = 0; c < p.channels; ++c) out[c] += static_cast<float>(from[c]) * w;
    }
  }
}

template <class T>
void nearest_pixel(const Plan& p, const T* image, int64_t y, int64_t x, T* out) {
  std::copy_n(image + (p.height.index(y)[0] * p.width.original + p.width.index(x)[0]) * p.channels,
              p.channels, out);
}

class ResizeKernel final : public Kernel {
 public:
  ResizeKernel(ResizeMethod method, ResizeCenters centers) : method_(method), centers_(centers) {}
  template <ResizeMethod kMethod>
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const ResizeCenters centers, read_resize_centers(node.attrs));
    return std::unique_ptr<Kernel>(std::make_unique<ResizeKernel>(kMethod, centers));
  }

  Status compute(KernelContext& ctx) const override {
    const Tensor& images = ctx.input(0);
    MR_TRY_ASSIGN(const Shape shape, read_sizes(ctx, images.shape()));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (out->num_elements() == 0) return ok_status();
    MR_TRY_ASSIGN(const Plan p, Plan::make(ctx, method_, centers_, images.shape(), shape));
    return dispatch<ImageTypes>(images.dtype(),
                                [&]<class T>() { resize<T>(ctx, p, images, *out); });
  }

 private:
  template <class T>
  void resize(KernelContext& ctx, const Plan& p, const Tensor& images, Tensor& out) const {
    const Shape& shape = out.shape();
    const T* const from = images.data<T>().data();
    const auto for_each_pixel = [&](auto body) {
      const double cost = p.cost() * static_cast<double>(shape[2] * p.channels);
      ctx.parallel_for(p.batch * shape[1], cost, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          for (int64_t x = 0; x < shape[2]; ++x) {
            body(from + row / shape[1] * p.image_size(), row % shape[1], x,
                 (row * shape[2] + x) * p.channels);
          }
        }
      });
    };
    if (method_ == ResizeMethod::kNearest) {
      T* const to = out.mutable_data<T>().data();
      for_each_pixel([&](const T* image, int64_t y, int64_t x, int64_t at) {
        nearest_pixel(p, image, y, x, to + at);
      });
      return;
    }
    float* const to = out.mutable_data<float>().data();
    const bool bilinear = method_ == ResizeMethod::kBilinear;
    for_each_pixel([&](const T* image, int64_t y, int64_t x, int64_t at) {
      if (bilinear) {
        bilinear_pixel(p, image, y, x, to + at);
      } else {
        weighted_pixel(p, image, y, x, to + at);
      }
    });
  }

  ResizeMethod method_;
  ResizeCenters centers_;
};

// The transposed map, of gradients of type G to images of type T. Channels are shared among threads
// in blocks, images too; sums are made in the order of the pixels.
class ResizeGradKernel final : public Kernel {
 public:
  ResizeGradKernel(ResizeMethod method, ResizeCenters centers)
      : method_(method), centers_(centers) {}
  template <ResizeMethod kMethod>
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const ResizeCenters centers, read_resize_centers(node.attrs));
    return std::unique_ptr<Kernel>(std::make_unique<ResizeGradKernel>(kMethod, centers));
  }

  Status compute(KernelContext& ctx) const override {
    const Tensor& grads = ctx.input(0);
    MR_TRY_ASSIGN(const Shape shape, original_shape(ctx));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (out->num_elements() == 0) return ok_status();
    MR_TRY_ASSIGN(const Plan p, Plan::make(ctx, method_, centers_, shape, grads.shape()));
    if (method_ == ResizeMethod::kNearest) {
      return dispatch<NearestGradTypes>(
          out->dtype(), [&]<class T>() { return scatter_all<T, T>(ctx, p, grads, *out); });
    }
    return dispatch<FloatingTypes>(
        out->dtype(), [&]<class T>() { return scatter_all<T, float>(ctx, p, grads, *out); });
  }

 private:
  // The shape of the image whose gradient it is: of input 1, or as that says.
  Result<Shape> original_shape(KernelContext& ctx) const {
    const Shape& grads = ctx.input(0).shape();
    if (method_ == ResizeMethod::kNearest) return read_sizes(ctx, grads);
    const Shape& image = ctx.input(1).shape();
    if (grads.rank() != 4 || image.rank() != 4) {
      return invalid_argument("grads and original_image must have rank 4, got ", grads, " and ",
                              image);
    }
    MR_TRY_ASSIGN(const Shape shape, resized(grads, image[1], image[2]));
    if (!(shape == image)) {
      return invalid_argument("original_image must have shape ", shape, " for grads of ", grads,
                              ", got ", image);
    }
    return shape;
  }

  template <class T, class G>
  static Status scatter_all(KernelContext& ctx, const Plan& p, const Tensor& grads, Tensor& out) {
    using Sum = ComputeType<T>;
    MR_TRY_ASSIGN(Tensor sums, compute_buffer<T>(ctx, out));
    Sum* const sum = sums.mutable_data<Sum>().data();
    const G* const from = grads.data<G>().data();
    constexpr int64_t kChannels = 32;
    const int64_t blocks = (p.channels + kChannels - 1) / kChannels;
    const int64_t pixels = p.height.resized * p.width.resized;
    const double cost = p.cost() * static_cast<double>(pixels) *
                        static_cast<double>(std::min(kChannels, p.channels));
    ctx.parallel_for(p.batch * blocks, cost, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t n = t / blocks, first = t % blocks * kChannels;
        const int64_t channels = std::min(kChannels, p.channels - first);
        scatter(p, from + n * pixels * p.channels + first, channels,
                sum + n * p.image_size() + first);
      }
    });
    finish_output<T>(ctx, sums, out);
    return ok_status();
  }

  // `channels` channels of one image.
  template <class G, class Sum>
  static void scatter(const Plan& p, const G* grads, int64_t channels, Sum* image) {
    for (int64_t i = 0; i < p.height.original * p.width.original; ++i) {
      std::fill_n(image + i * p.channels, channels, Sum{});
    }
    for (int64_t y = 0; y < p.height.resized; ++y) {
      for (int64_t x = 0; x < p.width.resized; ++x, grads += p.channels) {
        for (int64_t j = 0; j < p.height.taps; ++j) {
          for (int64_t i = 0; i < p.width.taps; ++i) {
            const float w = p.height.weight(y)[j] * p.width.weight(x)[i];
            const int64_t at = p.height.index(y)[j] * p.width.original + p.width.index(x)[i];
            Sum* const to = image + at * p.channels;
            for (int64_t c = 0; c < channels; ++c) {
              if constexpr (std::is_integral_v<Sum>) {
                to[c] = wrapping_add(to[c], static_cast<Sum>(grads[c]));
              } else {
                to[c] += static_cast<Sum>(grads[c]) * static_cast<Sum>(w);
              }
            }
          }
        }
      }
    }
  }

  ResizeMethod method_;
  ResizeCenters centers_;
};

struct Description {
  const char* op;
  const char* doc;
  GradientRule gradient, gradient_of_gradient;
  TypeSet gradient_types;
};

}  // namespace

void register_resize(Registry& registry) {
  const Description all[] = {
      {"ResizeNearestNeighbor", "Resizes images: each pixel is the nearest of the original.",
       nearest_grad, nearest_grad_grad, type_set_of<NearestGradTypes>},
      {"ResizeBilinear", "Resizes images by bilinear interpolation.", bilinear_grad,
       bilinear_grad_grad, kFloating},
      {"ResizeBicubic",
       "Resizes images by bicubic interpolation.",
       bicubic_grad,
       bicubic_grad_grad,
       {DType::kFloat, DType::kDouble}},
      {"ResizeArea", "Resizes images: each pixel is the mean of the area it covers.", area_grad,
       area_grad_grad, kFloating}};
  for (const Description& d : all) {
    const std::string name = d.op;
    const bool nearest = name == "ResizeNearestNeighbor";
    std::vector<OpSpec::Attr> attrs = {{"align_corners", "bool = false"}};
    if (name != "ResizeArea") attrs.push_back({"half_pixel_centers", "bool = false"});
    registry.add({.name = name,
                  .doc = d.doc,
                  .inputs = {{"images", "T"}, {"size", "host(int32)"}},
                  .outputs = {{"resized_images", nearest ? "T" : "float"}},
                  .types = {{"T", type_set_of<ImageTypes>}},
                  .attrs = attrs,
                  .traits = {.cost = 4},
                  .shape = resize_shape,
                  .gradient = d.gradient});
    registry.add(
        {.name = name + "Grad",
         .doc = "The gradient of " + name + ".",
         .inputs = nearest ? std::vector<OpSpec::Arg>{{"grads", "T"}, {"size", "host(int32)"}}
                           : std::vector<OpSpec::Arg>{{"grads", "float"}, {"original_image", "T"}},
         .outputs = {{"output", "T"}},
         .types = {{"T", d.gradient_types}},
         .attrs = attrs,
         .traits = {.cost = 8},
         .shape = nearest ? resize_shape : resize_grad_shape,
         .gradient = d.gradient_of_gradient});
  }
  const auto kernel = [&](const char* op, KernelFactory factory) {
    registry.kernel({.op = op, .factory = factory});
  };
  kernel("ResizeNearestNeighbor", ResizeKernel::make<ResizeMethod::kNearest>);
  kernel("ResizeBilinear", ResizeKernel::make<ResizeMethod::kBilinear>);
  kernel("ResizeBicubic", ResizeKernel::make<ResizeMethod::kBicubic>);
  kernel("ResizeArea", ResizeKernel::make<ResizeMethod::kArea>);
  kernel("ResizeNearestNeighborGrad", ResizeGradKernel::make<ResizeMethod::kNearest>);
  kernel("ResizeBilinearGrad", ResizeGradKernel::make<ResizeMethod::kBilinear>);
  kernel("ResizeBicubicGrad", ResizeGradKernel::make<ResizeMethod::kBicubic>);
  kernel("ResizeAreaGrad", ResizeGradKernel::make<ResizeMethod::kArea>);
}

}  // namespace millrace
