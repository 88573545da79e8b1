#pragma once

#include <array>

#include "millrace/ops/nn/window_geometry.h"

// As window_geometry.h, with three axes: depth, height, width.

namespace millrace {

struct VolumeSpec {
  bool channels_last = true;
  Padding padding = Padding::kValid;
  std::array<WindowAxis, 3> axes;

  int axis_dim(int axis) const { return channels_last ? axis + 1 : axis + 2; }
  int channel_dim() const { return channels_last ? 4 : 1; }
};

// From "strides", "padding", "data_format", and where present "dilations"; window sizes stay 1.
// INVALID_ARGUMENT for wrong lengths and sizes, UNIMPLEMENTED for strides or dilations along batch
// or channels.
Result<VolumeSpec> read_volume_conv_spec(const AttrMap& attrs);
// The same with window sizes from "ksize", for pools.
Result<VolumeSpec> read_volume_pool_spec(const AttrMap& attrs);

using VolumeGeometry = std::array<AxisGeometry, 3>;

// All three axes of `volume`, which has rank 5.
Result<VolumeGeometry> volume_geometry(const VolumeSpec& spec, const Shape& volume);
// Batch, the outputs of the axes, channels, in the layout of `spec`.
Result<Shape> volume_shape(const VolumeSpec& spec, int64_t batch, const VolumeGeometry& geometry,
                           int64_t channels);
// What is known of that, of an input of which little is. Windows may be unknown (-1).
Result<PartialShape> partial_volume_shape(const VolumeSpec& spec, const PartialShape& input,
                                          int64_t channels);

}  // namespace millrace
