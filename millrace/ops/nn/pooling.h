#pragma once

#include <memory>
#include <type_traits>
#include <vector>

#include "millrace/graph/op_def.h"
#include "millrace/kernel/kernel.h"
#include "millrace/ops/nn/window_geometry.h"

namespace millrace {

class GradientContext;
class ShapeContext;

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

  int64_t image_size() const { return height.input * width.input * channels; }

  // Calls body(offset) for every pixel of the window of output (oy, ox), in order: where in the
  // image its first channel is.
  template <class Body>
  void for_each_in_window(int64_t oy, int64_t ox, Body body) const {
    for (int64_t fy = height.first(oy); fy < height.last(oy); ++fy) {
      for (int64_t fx = width.first(ox); fx < width.last(ox); ++fx) {
        body(((height.origin(oy) + fy) * width.input + width.origin(ox) + fx) * channels);
      }
    }
  }

  // Calls body(image, oy, ox, offset) for every output pixel, rows shared among threads: the number
  // of its image, its place there, and where in the whole output its first channel is.
  template <class Body>
  void for_each_output(KernelContext& ctx, Body body) const {
    const double cost = work(static_cast<double>(width.output * channels)) * 0.5;
    ctx.parallel_for(batch * height.output, cost, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t ox = 0; ox < width.output; ++ox) {
          body(row / height.output, row % height.output, ox, (row * width.output + ox) * channels);
        }
      }
    });
  }
};

// The one check of a pool's shapes: of its input, and where `gradient` is given (not null) that it
// has the shape of the output; `what` names it.
Result<PoolGeometry> pool_geometry(const WindowSpec& spec, const Shape& input,
                                   const Shape* gradient = nullptr, const char* what = "grad");

// The attributes of all pools.
std::vector<OpSpec::Attr> pool_attrs();
// Their values, to be handed on by a gradient rule.
AttrMap pool_attrs(const GradientContext& c);

// The shape rule of a pool of input 0.
Status pool_shape(ShapeContext& c);

// What all kernels of pools are made from. `Derived` has compute().
template <class Derived>
class PoolKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const WindowSpec spec, read_pool_spec(node.attrs));
    auto kernel = std::make_unique<Derived>();
    static_cast<PoolKernel&>(*kernel).spec_ = spec;
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

 protected:
  WindowSpec spec_;
};

}  // namespace millrace
