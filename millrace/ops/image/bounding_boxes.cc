#include <algorithm>
#include <cmath>
#include <vector>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/tensor/dispatch.h"

// DrawBoundingBoxes and V2, which takes the colours.

namespace millrace {
namespace {

using DrawTypes = TypeList<float, Half, BFloat16>;

// The one check of shapes, as far as they are known. Colours without elements stand for none.
Status check_drawn(const PartialShape& images, const PartialShape& boxes,
                   const PartialShape& colors) {
  const PartialShape batch = {images.dim(0), -1, 4};
  if (!boxes.compatible(batch)) {
    return invalid_argument("boxes must have shape ", batch, ", got ", boxes);
  }
  const int64_t channels = images.dim(3);
  if (channels >= 0 && channels != 1 && channels != 3 && channels != 4) {
    return invalid_argument("images must have 1, 3 or 4 channels, got ", images);
  }
  if (colors.dim(0) > 0 && colors.dim(1) > 0 && colors.dim(1) < channels) {
    return invalid_argument("colors must have shape [n, ", channels, "], got ", colors);
  }
  return ok_status();
}

Status draw_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape images, c.with_rank(0, 4));
  MR_TRY_ASSIGN(const PartialShape boxes, c.with_rank(1, 3));
  PartialShape colors = PartialShape::of_rank(2);
  if (c.num_inputs() > 2) {
    MR_TRY_ASSIGN(colors, c.with_rank(2, 2));
  }
  MR_TRY(check_drawn(images, boxes, colors));
  if (!images.dim_known(0)) images.set_dim(0, boxes.dim(0));
  c.set_output(0, std::move(images));
  return ok_status();
}

constexpr float kColors[][4] = {
    {1, 1, 0, 1},        // yellow
    {0, 0, 1, 1},        // blue
    {1, 0, 0, 1},        // red
    {0, 1, 0, 1},        // lime
    {0.5F, 0, 0.5F, 1},  // purple
    {0.5F, 0.5F, 0, 1},  // olive
    {0.5F, 0, 0, 1},     // maroon
    {0, 0, 0.5F, 1},     // navy
    {0, 1, 1, 1},        // aqua
    {1, 0, 1, 1},        // fuchsia
};

// Where a side of a box lies on an axis of `size` pixels, as TensorFlow rounds it; far outside it
// stays outside. NaN is outside too.
int64_t side(float at, int64_t size) {
  const float place = at * static_cast<float>(size - 1);
  if (!(place > -1e9F)) return -1000000000;
  return place < 1e9F ? static_cast<int64_t>(place) : 1000000000;
}

template <class T>
struct Image {
  T* pixels;
  int64_t height, width, channels;

  void fill(int64_t row, int64_t column, const T* color) const {
    std::copy_n(color, channels, pixels + (row * width + column) * channels);
  }
  void draw(const float* box, const T* color) const {
    const int64_t top = side(box[0], height), left = side(box[1], width);
    const int64_t bottom = side(box[2], height), right = side(box[3], width);
    if (top > bottom || left > right) return;
    if (top >= height || bottom < 0 || left >= width || right < 0) return;
    const int64_t first_row = std::max<int64_t>(top, 0), last_row = std::min(bottom, height - 1);
    const int64_t first = std::max<int64_t>(left, 0), last = std::min(right, width - 1);
    for (int64_t column = first; column <= last; ++column) {
      if (top >= 0) fill(top, column, color);
      if (bottom < height) fill(bottom, column, color);
    }
    for (int64_t row = first_row; row <= last_row; ++row) {
      if (left >= 0) fill(row, left, color);
      if (right < width) fill(row, right, color);
    }
  }
};

// The colours, one after the other, each of `channels` elements.
template <class T>
std::vector<T> palette(KernelContext& ctx, int64_t channels) {
  std::vector<T> colors;
  if (ctx.num_inputs() > 2 && ctx.input(2).num_elements() > 0) {
    const Tensor& given = ctx.input(2);
    for (int64_t i = 0; i < given.dim(0); ++i) {
      for (int64_t c = 0; c < channels; ++c) {
        colors.push_back(
            static_cast<T>(given.data<float>()[static_cast<size_t>(i * given.dim(1) + c)]));
      }
    }
    return colors;
  }
  for (const auto& color : kColors) {
    for (int64_t c = 0; c < channels; ++c) {
      colors.push_back(static_cast<T>(channels == 1 ? 1.0F : color[c]));
    }
  }
  return colors;
}

template <class T>
Status draw_bounding_boxes(KernelContext& ctx) {
  MR_TRY(expect_rank(ctx, 0, 4));
  MR_TRY(expect_rank(ctx, 1, 3));
  if (ctx.num_inputs() > 2) MR_TRY(expect_rank(ctx, 2, 2));
  const Tensor &images = ctx.input(0), &boxes = ctx.input(1);
  MR_TRY(check_drawn(
      images.shape(), boxes.shape(),
      ctx.num_inputs() > 2 ? PartialShape(ctx.input(2).shape()) : PartialShape::of_rank(2)));
  const int64_t channels = images.dim(3);
  const std::vector<T> colors = palette<T>(ctx, channels);
  const Tensor original = images;
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, original.shape()));
  copy_elements(original, *out);
  if (out->num_elements() == 0) return ok_status();
  const int64_t height = original.dim(1), width = original.dim(2), count = boxes.dim(1);
  const int64_t num_colors = static_cast<int64_t>(colors.size()) / channels;
  T* const pixels = out->mutable_data<T>().data();
  const float* const all = boxes.data<float>().data();
  const double cost = static_cast<double>(2 * (height + width)) * static_cast<double>(count);
  ctx.parallel_for(original.dim(0), cost, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const Image<T> image{pixels + n * height * width * channels, height, width, channels};
      for (int64_t b = 0; b < count; ++b) {
        image.draw(all + (n * count + b) * 4, colors.data() + b % num_colors * channels);
      }
    }
  });
  return ok_status();
}

template <class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  for (const char* op : {"DrawBoundingBoxes", "DrawBoundingBoxesV2"}) {
    (registry.kernel<Ts>(op, DeviceKind::kCpu, &draw_bounding_boxes<Ts>), ...);
  }
}

}  // namespace

void register_bounding_boxes(Registry& registry) {
  for (const bool colors : {false, true}) {
    OpSpec spec{.name = colors ? "DrawBoundingBoxesV2" : "DrawBoundingBoxes",
                .doc = "Draws boxes [y1, x1, y2, x2], from 0 to 1, on images.",
                .inputs = {{"images", "T"}, {"boxes", "float"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", type_set_of<DrawTypes>, DType::kFloat}},
                .traits = {.cannot_differentiate = !colors, .cost = 0.5},
                .shape = draw_shape,
                .no_gradient = "prepares images for training or for people"};
    if (colors) spec.inputs.push_back({"colors", "float"});
    registry.add(spec);
  }
  register_kernels(registry, DrawTypes());
}

}  // namespace millrace
