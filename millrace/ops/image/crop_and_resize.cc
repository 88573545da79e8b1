#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/size_rules.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/indices.h"
#include "millrace/tensor/dispatch.h"

// CropAndResize and its gradients with respect to image and boxes. A box is [y1, x1, y2, x2], from
// 0 at the first to 1 at the last pixel of an image.

namespace millrace {
namespace {

using ImageTypes =
    ConcatTypes<FloatingTypes, TypeList<int8_t, uint8_t, int16_t, uint16_t, int32_t, int64_t>>;

// The number of boxes.
Result<int64_t> boxes_dim(const ShapeContext& c, int boxes, int box_ind) {
  MR_TRY_ASSIGN(const PartialShape shape, c.with_rank(boxes, 2));
  if (shape.dim_known(1) && shape.dim(1) != 4) {
    return invalid_argument("boxes must have 4 columns, got ", shape);
  }
  MR_TRY_ASSIGN(const PartialShape indices, c.with_rank(box_ind, 1));
  MR_TRY_ASSIGN(const PartialShape count, PartialShape({shape.dim(0)}).merge(indices));
  return count.dim(0);
}

// The one check of sizes, as far as they are known: a crop of an image.
Status check_crop(const PartialShape& image, int64_t crop_height, int64_t crop_width) {
  const auto possible = [](int64_t size) { return size != 0 && size < int64_t{1} << 31; };
  if (!possible(crop_height) || !possible(crop_width)) {
    return invalid_argument("crop dimensions must be positive and below 2^31, got [", crop_height,
                            ",", crop_width, "]");
  }
  if (image.dim(1) != 0 && image.dim(2) != 0) return ok_status();
  return invalid_argument("image dimensions must be positive, got ", image);
}

Status crop_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape image, c.with_rank(0, 4));
  MR_TRY_ASSIGN(const int64_t boxes, boxes_dim(c, 1, 2));
  MR_TRY_ASSIGN(const PartialShape size, sizes_input(c, 3, 2));
  MR_TRY(check_crop(image, size.dim(0), size.dim(1)));
  c.set_output(0, PartialShape({boxes, size.dim(0), size.dim(1), image.dim(3)}));
  return ok_status();
}

Status grad_image_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const int64_t boxes, boxes_dim(c, 1, 2));
  MR_TRY_ASSIGN(const PartialShape image, sizes_input(c, 3, 4));
  MR_TRY_ASSIGN(const PartialShape grads, with_shape(c, 0, {boxes, -1, -1, image.dim(3)}));
  MR_TRY(check_crop(image, grads.dim(1), grads.dim(2)));
  c.set_output(0, PartialShape({image.dim(0), image.dim(1), image.dim(2), grads.dim(3)}));
  return ok_status();
}

Status grad_boxes_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape image, c.with_rank(1, 4));
  MR_TRY_ASSIGN(const int64_t boxes, boxes_dim(c, 2, 3));
  MR_TRY_ASSIGN(const PartialShape grads, with_shape(c, 0, {boxes, -1, -1, image.dim(3)}));
  MR_TRY(check_crop(image, grads.dim(1), grads.dim(2)));
  c.set_output(0, PartialShape({grads.dim(0), 4}));
  return ok_status();
}

Status crop_grad(GradientContext& c) {
  MR_TRY_ASSIGN(const std::string method, c.attr<std::string>("method"));
  const Expr image = c.input(0), boxes = c.input(1), indices = c.input(2), dy = c.gradient();
  if (kFloating.contains(c.input_type(0))) {
    c.set(0, call("CropAndResizeGradImage", {dy, boxes, indices, shape_of(image)},
                  {{"T", c.input_type(0)}, {"method", method}}));
  }
  c.set(1, method == "nearest" ? zeros_like(boxes)
                               : call("CropAndResizeGradBoxes", {dy, image, boxes, indices}));
  return ok_status();
}

// Linear in the gradient, and as CropAndResize in the boxes.
Status grad_image_grad(GradientContext& c) {
  MR_TRY_ASSIGN(const std::string method, c.attr<std::string>("method"));
  const Expr grads = c.input(0), boxes = c.input(1), indices = c.input(2), g = c.gradient();
  OpBuilder& builder = c.builder();
  const Expr size = call("StridedSlice", {shape_of(grads), int32_vector(builder, {1}),
                                          int32_vector(builder, {3}), int32_vector(builder, {1})});
  c.set(0, call("CropAndResize", {g, boxes, indices, size}, {{"method", method}}));
  c.set(1, method == "nearest" ? zeros_like(boxes)
                               : call("CropAndResizeGradBoxes", {grads, g, boxes, indices}));
  return ok_status();
}

// One dimension of a box over an image.
struct CropAxis {
  float low, high;  // of the box
  int64_t size;     // of the image
  int64_t crop;

  float last() const { return static_cast<float>(size - 1); }
  // How much of the box lies before crop element i, from 0 to 1.
  float part(int64_t i) const {
    return crop > 1 ? static_cast<float>(i) / static_cast<float>(crop - 1) : 0.5F;
  }
  // Where on the image element i lies.
  float at(int64_t i) const {
    if (crop == 1) return 0.5F * (low + high) * last();
    const float step = (high - low) * last() / static_cast<float>(crop - 1);
    return low * last() + static_cast<float>(i) * step;
  }
  // False of NaN.
  bool inside(float at) const { return at >= 0 && at <= last(); }
  // The pixel at a whole number inside. A float cannot tell the last pixels of a very long axis
  // apart, and may lie behind them all.
  int64_t pixel(float whole) const { return std::min(static_cast<int64_t>(whole), size - 1); }
};

struct CropSizes {
  Indices images;  // the image of each box
  int64_t boxes = 0, batch = 0, height = 0, width = 0, channels = 0;
  int64_t crop_height = 0, crop_width = 0;
  int64_t image_size() const { return height * width * channels; }
  int64_t crop_size() const { return crop_height * crop_width * channels; }
};

// The one check of all that the three kernels get.
Result<CropSizes> crop_sizes(KernelContext& ctx, const Shape& image, const Tensor& boxes,
                             const Tensor& indices, int64_t crop_height, int64_t crop_width) {
  if (image.rank() != 4) return invalid_argument("image must have rank 4, got ", image);
  if (boxes.rank() != 2 || boxes.dim(1) != 4) {
    return invalid_argument("boxes must have shape [n, 4], got ", boxes.shape());
  }
  if (indices.rank() != 1 || indices.dim(0) != boxes.dim(0)) {
    return invalid_argument("box_ind must have an element for each of the ", boxes.dim(0),
                            " boxes, got ", indices.shape());
  }
  if (crop_height < 0 || crop_width < 0) {
    return invalid_argument("crop dimensions must be positive, got [", crop_height, ",", crop_width,
                            "]");
  }
  MR_TRY(check_crop(image, crop_height, crop_width));
  MR_TRY_ASSIGN(Indices images, Indices::read(ctx, indices));
  for (int64_t i : images.span()) {
    if (i < 0 || i >= image[0]) {
      return out_of_range("box_ind has values outside [0, ", image[0], "): ", i);
    }
  }
  return CropSizes{std::move(images), boxes.dim(0), image[0],    image[1],
                   image[2],          image[3],     crop_height, crop_width};
}

// The axes of box b.
struct BoxAxes {
  CropAxis y, x;
  BoxAxes(const CropSizes& s, const Tensor& boxes, int64_t b) {
    const float* const box = boxes.data<float>().data() + 4 * b;
    y = {box[0], box[2], s.height, s.crop_height};
    x = {box[1], box[3], s.width, s.crop_width};
  }
};

// The four pixels around a place, and how far from the first of them it is.
struct Corners {
  int64_t top_left, top_right, bottom_left, bottom_right;
  float ty, tx;
  Corners(const CropSizes& s, const BoxAxes& box, float y, float x) {
    const auto pixel = [&](float row, float column) {
      return (box.y.pixel(row) * s.width + box.x.pixel(column)) * s.channels;
    };
    const float top = std::floor(y), bottom = std::ceil(y);
    const float left = std::floor(x), right = std::ceil(x);
    top_left = pixel(top, left);
    top_right = pixel(top, right);
    bottom_left = pixel(bottom, left);
    bottom_right = pixel(bottom, right);
    ty = y - top;
    tx = x - left;
  }
};

int64_t nearest_pixel(const CropSizes& s, const BoxAxes& box, float y, float x) {
  return (box.y.pixel(std::round(y)) * s.width + box.x.pixel(std::round(x))) * s.channels;
}

// Calls body(y, x, offset) for the pixels of a crop: where it lies on the image, and where its
// first channel is in the crop. Those outside get outside(offset).
template <class Body, class Outside>
void for_each_pixel(const CropSizes& s, const BoxAxes& box, Body body, Outside outside) {
  for (int64_t i = 0; i < s.crop_height; ++i) {
    const float y = box.y.at(i);
    for (int64_t j = 0; j < s.crop_width; ++j) {
      const float x = box.x.at(j);
      const int64_t offset = (i * s.crop_width + j) * s.channels;
      if (box.y.inside(y) && box.x.inside(x)) {
        body(i, j, y, x, offset);
      } else {
        outside(offset);
      }
    }
  }
}

Result<bool> is_nearest(const KernelNode& node) {
  MR_TRY_ASSIGN(const std::string method, node.attr<std::string>("method"));
  return method == "nearest";
}

class CropKernel final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    auto kernel = std::make_unique<CropKernel>();
    MR_TRY_ASSIGN(kernel->nearest_, is_nearest(node));
    MR_TRY_ASSIGN(kernel->outside_, node.attr<float>("extrapolation_value"));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status compute(KernelContext& ctx) const override {
    const Tensor &image = ctx.input(0), &boxes = ctx.input(1), &indices = ctx.input(2);
    MR_TRY_ASSIGN(const std::vector<int64_t> size, ctx.int_vector_input(3));
    if (size.size() != 2) return invalid_argument("crop_size must have 2 elements");
    MR_TRY_ASSIGN(const CropSizes s,
                  crop_sizes(ctx, image.shape(), boxes, indices, size[0], size[1]));
    const int64_t dims[] = {s.boxes, s.crop_height, s.crop_width, s.channels};
    MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (out->num_elements() == 0) return ok_status();
    float* const crops = out->mutable_data<float>().data();
    return dispatch<ImageTypes>(image.dtype(), [&]<class T>() {
      const T* const images = image.data<T>().data();
      ctx.parallel_for(s.boxes, static_cast<double>(4 * s.crop_size()),
                       [&](int64_t begin, int64_t end) {
                         for (int64_t b = begin; b < end; ++b) {
                           crop(s, BoxAxes(s, boxes, b), images + s.images[b] * s.image_size(),
                                crops + b * s.crop_size());
                         }
                       });
    });
  }

 private:
  template <class T>
  void crop(const CropSizes& s, const BoxAxes& box, const T* image, float* out) const {
    const auto value = [&](int64_t at) { return static_cast<float>(image[at]); };
    for_each_pixel(
        s, box,
        [&](int64_t, int64_t, float y, float x, int64_t offset) {
          if (nearest_) {
            const int64_t at = nearest_pixel(s, box, y, x);
            for (int64_t c = 0; c < s.channels; ++c) out[offset + c] = value(at + c);
            return;
          }
          const Corners k(s, box, y, x);
          for (int64_t c = 0; c < s.channels; ++c) {
            const float a = value(k.top_left + c), d = value(k.bottom_left + c);
            const float top = a + (value(k.top_right + c) - a) * k.tx;
            const float bottom = d + (value(k.bottom_right + c) - d) * k.tx;
            out[offset + c] = top + (bottom - top) * k.ty;
          }
        },
        [&](int64_t offset) { std::fill_n(out + offset, s.channels, outside_); });
  }

  bool nearest_ = false;
  float outside_ = 0;
};

class GradImageKernel final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    auto kernel = std::make_unique<GradImageKernel>();
    MR_TRY_ASSIGN(kernel->nearest_, is_nearest(node));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status compute(KernelContext& ctx) const override {
    const Tensor &grads = ctx.input(0), &boxes = ctx.input(1), &indices = ctx.input(2);
    MR_TRY(expect_rank(ctx, 0, 4));
    MR_TRY_ASSIGN(const Shape shape, ctx.shape_input(3));
    MR_TRY_ASSIGN(const CropSizes s,
                  crop_sizes(ctx, shape, boxes, indices, grads.dim(1), grads.dim(2)));
    if (grads.dim(0) != s.boxes || grads.dim(3) != s.channels) {
      return invalid_argument("grads ", grads.shape(), " do not fit ", s.boxes,
                              " boxes of an image ", shape);
    }
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (out->num_elements() == 0) return ok_status();
    return dispatch<FloatingTypes>(out->dtype(), [&]<class T>() -> Status {
      using Sum = ComputeType<T>;
      MR_TRY_ASSIGN(Tensor sums, compute_buffer<T>(ctx, *out));
      Sum* const sum = sums.mutable_data<Sum>().data();
      // Boxes of one image overlap, so each image is one task.
      const double cost = static_cast<double>(4 * s.crop_size()) * static_cast<double>(s.boxes);
      ctx.parallel_for(
          s.batch, cost / static_cast<double>(s.batch), [&](int64_t begin, int64_t end) {
            std::fill(sum + begin * s.image_size(), sum + end * s.image_size(), Sum{});
            for (int64_t b = 0; b < s.boxes; ++b) {
              if (s.images[b] < begin || s.images[b] >= end) continue;
              scatter(s, BoxAxes(s, boxes, b), grads.data<float>().data() + b * s.crop_size(),
                      sum + s.images[b] * s.image_size());
            }
          });
      finish_output<T>(ctx, sums, *out);
      return ok_status();
    });
  }

 private:
  template <class Sum>
  void scatter(const CropSizes& s, const BoxAxes& box, const float* grads, Sum* image) const {
    for_each_pixel(
        s, box,
        [&](int64_t, int64_t, float y, float x, int64_t offset) {
          const auto add = [&](int64_t at, float weight) {
            for (int64_t c = 0; c < s.channels; ++c) {
              image[at + c] += static_cast<Sum>(grads[offset + c] * weight);
            }
          };
          if (nearest_) return add(nearest_pixel(s, box, y, x), 1);
          const Corners k(s, box, y, x);
          add(k.top_left, (1 - k.ty) * (1 - k.tx));
          add(k.top_right, (1 - k.ty) * k.tx);
          add(k.bottom_left, k.ty * (1 - k.tx));
          add(k.bottom_right, k.ty * k.tx);
        },
        [](int64_t) {});
  }

  bool nearest_ = false;
};

// dL/dbox: what moves the place of each pixel, times the slope of the image there.
Status grad_boxes(KernelContext& ctx) {
  const Tensor &grads = ctx.input(0), &image = ctx.input(1);
  const Tensor &boxes = ctx.input(2), &indices = ctx.input(3);
  MR_TRY(expect_rank(ctx, 0, 4));
  MR_TRY_ASSIGN(const CropSizes s,
                crop_sizes(ctx, image.shape(), boxes, indices, grads.dim(1), grads.dim(2)));
  if (grads.dim(0) != s.boxes || grads.dim(3) != s.channels) {
    return invalid_argument("grads ", grads.shape(), " do not fit ", s.boxes, " boxes of an image ",
                            image.shape());
  }
  const int64_t dims[] = {s.boxes, 4};
  MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
  const float* const all_grads = grads.data<float>().data();
  float* const to = out->mutable_data<float>().data();
  if (s.channels == 0) {  // of crops that may have any number of pixels
    std::fill_n(to, out->num_elements(), 0.0F);
    return ok_status();
  }
  return dispatch<ImageTypes>(image.dtype(), [&]<class T>() {
    const T* const images = image.data<T>().data();
    ctx.parallel_for(
        s.boxes, static_cast<double>(6 * s.crop_size()), [&](int64_t begin, int64_t end) {
          for (int64_t b = begin; b < end; ++b) {
            const BoxAxes box(s, boxes, b);
            const T* const from = images + s.images[b] * s.image_size();
            const float* const dy = all_grads + b * s.crop_size();
            const auto value = [&](int64_t at) { return static_cast<float>(from[at]); };
            float sums[4] = {};
            for_each_pixel(
                s, box,
                [&](int64_t i, int64_t j, float y, float x, int64_t offset) {
                  const Corners k(s, box, y, x);
                  float along_y = 0, along_x = 0;
                  for (int64_t c = 0; c < s.channels; ++c) {
                    const float tl = value(k.top_left + c), tr = value(k.top_right + c);
                    const float bl = value(k.bottom_left + c), br = value(k.bottom_right + c);
                    along_y += dy[offset + c] * ((1 - k.tx) * (bl - tl) + k.tx * (br - tr));
                    along_x += dy[offset + c] * ((1 - k.ty) * (tr - tl) + k.ty * (br - bl));
                  }
                  along_y *= box.y.last();
                  along_x *= box.x.last();
                  sums[0] += along_y * (1 - box.y.part(i));
                  sums[1] += along_x * (1 - box.x.part(j));
                  sums[2] += along_y * box.y.part(i);
                  sums[3] += along_x * box.x.part(j);
                },
                [](int64_t) {});
            std::copy_n(sums, 4, to + 4 * b);
          }
        });
  });
}

}  // namespace

void register_crop_and_resize(Registry& registry) {
  const OpSpec::Attr method = {"method", "string = 'bilinear' in {'bilinear','nearest'}"};
  registry.add({.name = "CropAndResize",
                .doc = "Cuts boxes out of images and resizes them to one size.",
                .inputs = {{"image", "T"},
                           {"boxes", "float"},
                           {"box_ind", "int32"},
                           {"crop_size", "host(int32)"}},
                .outputs = {{"crops", "float"}},
                .types = {{"T", type_set_of<ImageTypes>}},
                .attrs = {method, {"extrapolation_value", "float = 0"}},
                .traits = {.cost = 4},
                .shape = crop_shape,
                .gradient = crop_grad});
  registry.add({.name = "CropAndResizeGradImage",
                .doc = "The gradient of CropAndResize with respect to its image.",
                .inputs = {{"grads", "float"},
                           {"boxes", "float"},
                           {"box_ind", "int32"},
                           {"image_size", "host(int32)"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating}},
                .attrs = {method},
                .traits = {.cost = 4},
                .shape = grad_image_shape,
                .gradient = grad_image_grad});
  registry.add(
      {.name = "CropAndResizeGradBoxes",
       .doc = "The gradient of CropAndResize with respect to its boxes.",
       .inputs = {{"grads", "float"}, {"image", "T"}, {"boxes", "float"}, {"box_ind", "int32"}},
       .outputs = {{"output", "float"}},
       .types = {{"T", type_set_of<ImageTypes>}},
       .attrs = {{"method", "string = 'bilinear' in {'bilinear'}"}},
       .traits = {.cost = 100},
       .shape = grad_boxes_shape,
       .no_gradient = "has no second derivative in TensorFlow either"});
  registry.kernel<CropKernel>("CropAndResize", DeviceKind::kCpu);
  registry.kernel<GradImageKernel>("CropAndResizeGradImage", DeviceKind::kCpu);
  registry.kernel("CropAndResizeGradBoxes", DeviceKind::kCpu, grad_boxes);
}

}  // namespace millrace
