#pragma once

#include <algorithm>
#include <memory>
#include <type_traits>
#include <vector>

#include "millrace/graph/op_def.h"
#include "millrace/kernel/kernel.h"
#include "millrace/ops/device_engine.h"
#include "millrace/ops/nn/pool_loops.h"
#include "millrace/ops/nn/staged_rows.h"

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

  // Elements of one image, and of its output.
  int64_t image_size() const {
    int64_t size = channels;
    for (const AxisGeometry& axis : axes) size *= axis.input;
    return size;
  }
  int64_t output_size() const { return rows() * row_size(); }
  // The output of an image is so many rows along the last axis, of so many elements.
  int64_t rows() const {
    int64_t count = 1;
    for (size_t a = 0; a + 1 < N; ++a) count *= axes[a].output;
    return count;
  }
  int64_t row_size() const { return axes[N - 1].output * channels; }
  // How many elements of an image the largest window sees, of one channel.
  int64_t window_size() const {
    int64_t size = 1;
    for (const AxisGeometry& axis : axes) size *= std::min(axis.window, axis.input);
    return size;
  }
  // Of one image, for PoolLoops.
  PoolVolume volume() const {
    return {N == 3 ? axes[0] : AxisGeometry{.input = 1, .output = 1}, axes[N - 2], axes[N - 1],
            channels};
  }

  // Calls body(offset) for every pixel of the window of an output pixel, in order: where in the
  // image its first channel is.
  template <class Body>
  void for_each_in_window(const Place& at, Body body) const {
    in_window<0>(at, 0, body);
  }

  // Calls body(image, row, offset) for every row of the output, shared among threads: the number of
  // its image, the row's there, and where in the whole output its first element is. An element of a
  // window takes about `cost` nanoseconds.
  template <class Body>
  void for_each_row(KernelContext& ctx, double cost, Body body) const {
    ctx.parallel_for(batch * rows(), work(row_size()) * cost, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        body(row / rows(), row % rows(), row * row_size());
      }
    });
  }
  // Calls body(image, place, offset) for every output pixel, rows shared among threads: the number
  // of its image, its place there, and where in the whole output its first channel is.
  template <class Body>
  void for_each_output(KernelContext& ctx, Body body) const {
    for_each_row(ctx, 0.5, [&](int64_t image, int64_t row, int64_t offset) {
      Place at = {};
      for (size_t a = N - 1; a-- > 0; row /= axes[a].output) at[a] = row % axes[a].output;
      for (int64_t& x = at[N - 1]; x < axes[N - 1].output; ++x) {
        body(image, at, offset + x * channels);
      }
    });
  }
  // Adds up `sums`, which is like the input, from all windows: calls add(image, row, from, to) for
  // every row of the output and channels [from, to), images and channels shared among threads, rows
  // in order. Where a row's windows lie, `sums` has been set to zeros before. An element of a
  // window takes about `cost` nanoseconds.
  template <class T, class Add>
  void sum_windows(KernelContext& ctx, double cost, T* sums, Add add) const {
    // Channels are cut where images are few, and then into long runs of memory.
    constexpr int64_t kShares = 16, kRun = 64;
    const auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
    const int64_t cuts =
        std::min(ceil_div(kShares, std::max<int64_t>(batch, 1)), ceil_div(channels, kRun));
    const int64_t width = ceil_div(ceil_div(channels, cuts), kRun) * kRun;
    const int64_t blocks = ceil_div(channels, width);
    ctx.parallel_for(batch * blocks, work(output_size()) / static_cast<double>(blocks) * cost,
                     [&](int64_t begin, int64_t end) {
                       while (begin < end) {
                         const int64_t image = begin / blocks, from = begin % blocks;
                         const int64_t to = std::min(from + end - begin, blocks);
                         sum_image(image, from * width, std::min(to * width, channels),
                                   sums + image * image_size(), add);
                         begin += to - from;
                       }
                     });
  }

 private:
  // How many elements the windows of `outputs` output elements hold, roughly.
  double work(int64_t outputs) const {
    return static_cast<double>(outputs) * static_cast<double>(window_size());
  }

  template <class T, class Add>
  void sum_image(int64_t image, int64_t from, int64_t to, T* sums, Add add) const {
    const AxisGeometry& axis = axes[0];
    const int64_t plane = image_size() / axis.input;
    const int64_t plane_rows = axis.output == 0 ? 0 : rows() / axis.output;
    int64_t clean = 0;  // planes of zeros or sums
    const auto clean_until = [&](int64_t end) {
      for (; clean < end; ++clean) {
        for (int64_t at = clean * plane; at < (clean + 1) * plane; at += channels) {
          std::fill(sums + at + from, sums + at + to, T{});
        }
      }
    };
    for (int64_t o = 0; o < axis.output; ++o) {
      clean_until(std::min(axis.origin(o) + axis.window, axis.input));
      for (int64_t row = o * plane_rows; row < (o + 1) * plane_rows; ++row) {
        add(image, row, from, to);
      }
    }
    clean_until(axis.input);
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

// The same pool for the engine of a device.
template <int N>
DeviceEngine::Pooling engine_pooling(const PoolGeometry<N>& g) {
  DeviceEngine::Pooling sizes = {.batch = g.batch, .channels = g.channels};
  for (int a = 0; a < N; ++a) {
    const AxisGeometry& axis = g.axes[static_cast<size_t>(a)];
    sizes.axes[3 - N + a] = {axis.input,    axis.window, axis.stride,
                             axis.dilation, axis.before, axis.output};
  }
  return sizes;
}

// A pool whose every output row comes from its image alone, by one of the PoolLoops that has the
// signature of `max`. An element of a window takes about `cost` nanoseconds.
template <class T, int N>
Status pool_forward(KernelContext& ctx, const WindowSpec<N>& spec, double cost,
                    decltype(PoolLoops<ComputeType<T>>::max) PoolLoops<ComputeType<T>>::*loop) {
  using C = ComputeType<T>;
  MR_TRY_ASSIGN(const PoolGeometry<N> g, pool_geometry(spec, ctx.input(0).shape()));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, g.output));
  if (out->num_elements() == 0) return ok_status();
  if (DeviceEngine* const device = device_engine(ctx)) {
    const bool max = loop == &PoolLoops<C>::max;
    return device->pool(ctx, max ? DeviceEngine::Pool::kMax : DeviceEngine::Pool::kAverage,
                        out->dtype(), engine_pooling(g), ctx.input(0).raw(), nullptr,
                        out->mutable_raw());
  }
  MR_TRY_ASSIGN(const Tensor input, as_compute_type<T>(ctx, ctx.input(0)));
  MR_TRY_ASSIGN(Tensor result, compute_buffer<T>(ctx, *out));
  const C* const in = input.data<C>().data();
  C* const to = result.mutable_data<C>().data();
  const PoolVolume volume = g.volume();
  const auto row_of_pools = isa_table<PoolLoops<C>>().*loop;
  g.for_each_row(ctx, cost, [&](int64_t image, int64_t row, int64_t offset) {
    row_of_pools(volume, in + image * g.image_size(), row, 0, g.channels, to + offset);
  });
  finish_output<T>(ctx, result, *out);
  return ok_status();
}

}  // namespace millrace
