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

// A pool with all sizes known, seen as over images or volumes with channels last: with channels
// first they are batch * channels images of one channel.
template <int N>
struct PoolGeometry {
  // Coordinates of an output pixel.
  using Place = std::array<int64_t, N>;

  int64_t batch = 0;
  WindowGeometry<N> axes;
  int64_t channels = 0;
  Shape output;  // in the op's layout

  // How many input elements the windows of `outputs` output elements hold, roughly: for costs.
  double work(double outputs) const {
    for (const AxisGeometry& axis : axes) {
      outputs *= static_cast<double>(axis.window < axis.input ? axis.window : axis.input);
    }
    return outputs;
  }

  // Elements of one image, and of its output.
  int64_t image_size() const {
    int64_t size = channels;
    for (const AxisGeometry& axis : axes) size *= axis.input;
    return size;
  }
  int64_t output_size() const { return rows() * row_size(); }
  // Elements that the window of an output pixel sees.
  int64_t window_size(const Place& at) const {
    int64_t size = 1;
    for (size_t a = 0; a < N; ++a) size *= axes[a].last(at[a]) - axes[a].first(at[a]);
    return size;
  }

  // Calls body(offset) for every pixel of the window of an output pixel, in order: where in the
  // image its first channel is.
  template <class Body>
  void for_each_in_window(const Place& at, Body body) const {
    in_window<0>(at, 0, body);
  }

  // Calls body(image, place, offset) for every output pixel, rows shared among threads: the number
  // of its image, its place there, and where in the whole output its first channel is.
  template <class Body>
  void for_each_output(KernelContext& ctx, Body body) const {
    const double cost = work(static_cast<double>(row_size())) * 0.5;
    ctx.parallel_for(batch * rows(), cost, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        for_each_in_row(row % rows(), [&](const Place& at, int64_t offset) {
          body(row / rows(), at, row * row_size() + offset);
        });
      }
    });
  }
  // Calls body(place, offset) for every output pixel of one image, in order: where in its output
  // the first channel is.
  template <class Body>
  void for_each_output(Body body) const {
    for (int64_t row = 0; row < rows(); ++row) {
      for_each_in_row(
          row, [&](const Place& at, int64_t offset) { body(at, row * row_size() + offset); });
    }
  }

 private:
  // A row runs along the last axis.
  int64_t row_size() const { return axes[N - 1].output * channels; }
  int64_t rows() const {
    int64_t count = 1;
    for (size_t a = 0; a + 1 < N; ++a) count *= axes[a].output;
    return count;
  }

  template <class Body>
  void for_each_in_row(int64_t row, Body body) const {
    Place at = {};
    for (size_t a = N - 1; a-- > 0; row /= axes[a].output) at[a] = row % axes[a].output;
    for (int64_t& x = at[N - 1]; x < axes[N - 1].output; ++x) body(at, x * channels);
  }

  template <size_t kAxis, class Body>
  void in_window(const Place& at, int64_t pixels, Body& body) const {
    if constexpr (kAxis == N) {
      body(pixels * channels);
    } else {
      const AxisGeometry& axis = axes[kAxis];
      const int64_t origin = pixels * axis.input + axis.origin(at[kAxis]);
      const int64_t last = axis.last(at[kAxis]);
      for (int64_t f = axis.first(at[kAxis]); f < last; ++f) {
        in_window<kAxis + 1>(at, origin + f, body);
      }
    }
  }
};

// The one check of a pool's shapes: of its input, and where `gradient` is given (not null) that it
// has the shape of the output; `what` names it.
template <int N>
Result<PoolGeometry<N>> pool_geometry(const WindowSpec<N>& spec, const Shape& input,
                                      const Shape* gradient = nullptr, const char* what = "grad");

// The attributes of all pools.
template <int N>
std::vector<OpSpec::Attr> pool_attrs();
// Their values, to be handed on by a gradient rule.
AttrMap pool_attrs(const GradientContext& c);

// The shape rule of a pool of input 0.
template <int N>
Status pool_shape(ShapeContext& c);

// What all kernels of pools are made from. `Derived` has compute().
template <class Derived, int N>
class PoolKernel : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const WindowSpec<N> spec, read_pool_spec<N>(node.attrs));
    auto kernel = std::make_unique<Derived>();
    static_cast<PoolKernel&>(*kernel).spec_ = spec;
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

 protected:
  WindowSpec<N> spec_;
};

}  // namespace millrace
