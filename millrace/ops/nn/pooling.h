#pragma once

#include "millrace/kernel/kernel.h"
#include "millrace/ops/nn/window_geometry.h"

namespace millrace {

// A pool with all sizes known, seen as over NHWC images: NCHW images are batch * channels images of
// one channel.
struct PoolGeometry {
  int64_t batch = 0;
  AxisGeometry height;
  AxisGeometry width;
  int64_t channels = 0;
  Shape output;  // in the op's layout

  // How many input elements the windows of `outputs` output elements hold, roughly: for costs.
  double work(double outputs) const {
    const auto seen = [](const AxisGeometry& axis) {
      return static_cast<double>(axis.window < axis.input ? axis.window : axis.input);
    };
    return outputs * seen(height) * seen(width);
  }
};

// The one check of a pool's shapes: of its input, and where `gradient` is given (not null) that it
// has the shape of the output; `what` names it.
Result<PoolGeometry> pool_geometry(const WindowSpec& spec, const Shape& input,
                                   const Shape* gradient = nullptr, const char* what = "grad");

// The shape rule of a pool of input 0.
class ShapeContext;
Status pool_shape(ShapeContext& c);

}  // namespace millrace
