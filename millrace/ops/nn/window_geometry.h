#pragma once

#include <cstdint>

#include "millrace/graph/attr_value.h"
#include "millrace/tensor/partial_shape.h"
#include "millrace/tensor/shape.h"

// Where sliding windows lie over an image: read by the shape rules and the kernels of convolutions
// and pools.

namespace millrace {

enum class Padding : uint8_t { kValid, kSame, kExplicit };
enum class ImageLayout : uint8_t { kNhwc, kNchw };

// A window along one dimension of the image. All sizes are positive and at most 2^31 - 1.
struct WindowAxis {
  int64_t window = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t explicit_before = 0;
  int64_t explicit_after = 0;
};

// What the attributes of a convolution or pool say.
struct WindowSpec {
  ImageLayout layout = ImageLayout::kNhwc;
  Padding padding = Padding::kValid;
  WindowAxis height;
  WindowAxis width;

  int height_dim() const { return layout == ImageLayout::kNhwc ? 1 : 2; }
  int width_dim() const { return layout == ImageLayout::kNhwc ? 2 : 3; }
  int channel_dim() const { return layout == ImageLayout::kNhwc ? 3 : 1; }
};

// From "strides", "padding", "data_format", and where present "dilations" and "explicit_paddings";
// window sizes stay 1. INVALID_ARGUMENT for wrong lengths and sizes, UNIMPLEMENTED for strides or
// dilations along batch or channels.
Result<WindowSpec> read_conv_spec(const AttrMap& attrs);
// The same with window sizes from "ksize", for pools.
Result<WindowSpec> read_pool_spec(const AttrMap& attrs);

// One dimension with all sizes known: output element o sees input elements
// o * stride + t * dilation - before, for window elements t, as far as they exist.
struct AxisGeometry {
  int64_t input = 0;
  int64_t window = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t before = 0;
  int64_t output = 0;

  int64_t origin(int64_t o) const { return o * stride - before; }
  // The window elements [first, last) of output element o that lie on the input.
  int64_t first(int64_t o) const {
    const int64_t at = origin(o);
    return at >= 0 ? 0 : (-at + dilation - 1) / dilation;
  }
  int64_t last(int64_t o) const {
    const int64_t room = input - origin(o);
    const int64_t fit = room <= 0 ? 0 : (room + dilation - 1) / dilation;
    return fit < window ? fit : window;
  }
};

// INVALID_ARGUMENT naming `what` ("height") when the window does not fit.
Result<AxisGeometry> axis_geometry(const WindowAxis& axis, Padding padding, int64_t input,
                                   const char* what);
// The output size, -1 for an input (or axis.window) of -1.
Result<int64_t> axis_output(const WindowAxis& axis, Padding padding, int64_t input,
                            const char* what);

// A batch of images under one layout.
Result<Shape> image_shape(ImageLayout layout, int64_t batch, int64_t height, int64_t width,
                          int64_t channels);
PartialShape partial_image_shape(ImageLayout layout, int64_t batch, int64_t height, int64_t width,
                                 int64_t channels);

}  // namespace millrace
