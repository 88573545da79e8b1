#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "millrace/graph/attr_value.h"
#include "millrace/tensor/partial_shape.h"
#include "millrace/tensor/shape.h"

// Where sliding windows lie over images (N = 2 axes: height, width) and volumes (N = 3: depth,
// height, width): read by the shape rules and the kernels of convolutions and pools.

namespace millrace {

enum class Padding : uint8_t { kValid, kSame, kExplicit };

// A window along one axis. All sizes are positive and at most 2^31 - 1.
struct WindowAxis {
  int64_t window = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t explicit_before = 0;
  int64_t explicit_after = 0;
};

// What the attributes of a convolution or pool say.
template <int N>
struct WindowSpec {
  static constexpr int kRank = N + 2;

  bool channels_last = true;  // [batch, axes, channels]; else [batch, channels, axes]
  Padding padding = Padding::kValid;
  std::array<WindowAxis, N> axes;

  int axis_dim(int axis) const { return channels_last ? axis + 1 : axis + 2; }
  int channel_dim() const { return channels_last ? N + 1 : 1; }
  // The axes' windows become the first sizes of a filter; -1 is an unknown one.
  template <class AnyShape>
  void set_windows(const AnyShape& filter) {
    for (size_t a = 0; a < axes.size(); ++a) axes[a].window = filter.dims()[a];
  }
};

// From "strides", "padding", and where present "data_format", "dilations" and "explicit_paddings";
// window sizes stay 1. INVALID_ARGUMENT for wrong lengths and sizes, UNIMPLEMENTED for strides or
// dilations along batch or channels.
template <int N>
Result<WindowSpec<N>> read_conv_spec(const AttrMap& attrs);
// The same with window sizes from "ksize", for pools.
template <int N>
Result<WindowSpec<N>> read_pool_spec(const AttrMap& attrs);

// One axis with all sizes known: output element o sees input elements
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

template <int N>
struct WindowGeometry : std::array<AxisGeometry, N> {};

// All axes of `input`. INVALID_ARGUMENT when it has not rank N + 2 or a window does not fit.
template <int N>
Result<WindowGeometry<N>> window_geometry(const WindowSpec<N>& spec, const Shape& input);

// A shape in the layout of `spec`, with N sizes for the axes.
template <int N>
Result<Shape> batch_shape(const WindowSpec<N>& spec, int64_t batch, std::span<const int64_t> sizes,
                          int64_t channels);
// That of the output, with the geometry's sizes.
template <int N>
Result<Shape> output_shape(const WindowSpec<N>& spec, int64_t batch,
                           const WindowGeometry<N>& geometry, int64_t channels);
// What is known of that, of an input of which little is. Windows may be unknown (-1).
template <int N>
Result<PartialShape> partial_output_shape(const WindowSpec<N>& spec, const PartialShape& input,
                                          int64_t channels);
// The same where nothing is known of the sizes.
template <int N>
PartialShape partial_batch_shape(const WindowSpec<N>& spec, int64_t batch, int64_t channels);

}  // namespace millrace
