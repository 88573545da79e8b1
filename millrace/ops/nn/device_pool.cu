// Pools of images, a vector of channels by each thread.

#include "millrace/ops/nn/device_nn.cuh"

namespace millrace {
namespace {

// Quotients by a number that is known before the launch.
struct Divisor {
  uint32_t divisor, magic, shift = 0;

  explicit Divisor(int64_t d) : divisor(static_cast<uint32_t>(d)) {
    while ((uint64_t{1} << shift) < divisor) ++shift;
    magic = static_cast<uint32_t>(
        (uint64_t{1} << 32) * ((uint64_t{1} << shift) - divisor) / divisor + 1);
  }
  // Of n < 2^31, which becomes the remainder.
  __device__ __forceinline__ int split(uint32_t& n) const {
    const auto high = static_cast<uint32_t>((static_cast<uint64_t>(n) * magic) >> 32);
    const uint32_t quotient = (high + n) >> shift, rest = n - quotient * divisor;
    n = quotient;
    return static_cast<int>(rest);
  }
};

// An axis that windows slide along, in numbers that are quick to compute with.
struct ImageAxis {
  int input, window, stride, before, output;

  explicit ImageAxis(const DeviceEngine::Axis& axis)
      : input(static_cast<int>(axis.input)),
        window(static_cast<int>(axis.window)),
        stride(static_cast<int>(axis.stride)),
        before(static_cast<int>(axis.before)),
        output(static_cast<int>(axis.output)) {}

  // The pixels that window `o` sees, counted from its first place, which may lie before the image.
  __device__ __forceinline__ int origin(int o) const { return o * stride - before; }
  __device__ __forceinline__ int first(int o) const { return origin(o) < 0 ? -origin(o) : 0; }
  __device__ __forceinline__ int end(int o) const {
    return origin(o) + window < input ? window : input - origin(o);
  }
  // The windows that see pixel `i`.
  __device__ __forceinline__ int first_window(int i) const {
    const int at = i + before;
    return at < window ? 0 : (at - window) / stride + 1;
  }
  __device__ __forceinline__ int end_window(int i) const {
    const int end = (i + before) / stride + 1;
    return end < output ? end : output;
  }
};

struct Sizes {
  ImageAxis h, w;
  Divisor lanes, columns, rows;  // of what there is a thread's work for

  Sizes(const DeviceEngine::Pooling& sizes, int lane, bool of_inputs)
      : h(sizes.axes[1]),
        w(sizes.axes[2]),
        lanes(sizes.channels / lane),
        columns(of_inputs ? w.input : w.output),
        rows(of_inputs ? h.input : h.output) {}
};

template <class C>
__device__ __forceinline__ bool larger(C x, C y) {
  return !(x <= y) && y == y;
}

// The largest of a window, or its place in the window, counted row by row.
template <class T, int V, bool kPlace>
struct LargestOfImages {
  Sizes s;
  const T* x;
  T* y;
  uint8_t* place;

  __device__ __forceinline__ void operator()(int64_t i) const {
    using C = ComputeType<T>;
    uint32_t image = static_cast<uint32_t>(i);
    const int lane = s.lanes.split(image), ox = s.columns.split(image), oy = s.rows.split(image);
    const auto lanes = static_cast<int>(s.lanes.divisor);
    C best[V] = {};
    uint8_t where[V] = {};
    const int top = s.h.origin(oy), left = s.w.origin(ox);
    bool any = false;
    for (int a = s.h.first(oy); a < s.h.end(oy); ++a) {
      for (int b = s.w.first(ox); b < s.w.end(ox); ++b) {
        const int pixel = (static_cast<int>(image) * s.h.input + top + a) * s.w.input + left + b;
        const Lane<T, V> in = reinterpret_cast<const Lane<T, V>*>(x)[pixel * lanes + lane];
#pragma unroll
        for (int k = 0; k < V; ++k) {
          const C v = widen(in.v[k]);
          if (!any || larger(v, best[k])) {
            best[k] = v;
            where[k] = static_cast<uint8_t>(a * s.w.window + b);
          }
        }
        any = true;
      }
    }
    if (kPlace) {
      Lane<uint8_t, V> out;
#pragma unroll
      for (int k = 0; k < V; ++k) out.v[k] = where[k];
      reinterpret_cast<Lane<uint8_t, V>*>(place)[i] = out;
    } else {
      Lane<T, V> out;
#pragma unroll
      for (int k = 0; k < V; ++k) out.v[k] = narrow<T>(best[k]);
      reinterpret_cast<Lane<T, V>*>(y)[i] = out;
    }
  }
};

template <class T, int V>
struct MeanOfImages {
  Sizes s;
  const T* x;
  T* y;

  __device__ __forceinline__ void operator()(int64_t i) const {
    using C = ComputeType<T>;
    uint32_t image = static_cast<uint32_t>(i);
    const int lane = s.lanes.split(image), ox = s.columns.split(image), oy = s.rows.split(image);
    const auto lanes = static_cast<int>(s.lanes.divisor);
    C sum[V] = {};
    int64_t count = 0;
    const int top = s.h.origin(oy), left = s.w.origin(ox);
    for (int a = s.h.first(oy); a < s.h.end(oy); ++a) {
      for (int b = s.w.first(ox); b < s.w.end(ox); ++b) {
        const int pixel = (static_cast<int>(image) * s.h.input + top + a) * s.w.input + left + b;
        const Lane<T, V> in = reinterpret_cast<const Lane<T, V>*>(x)[pixel * lanes + lane];
#pragma unroll
        for (int k = 0; k < V; ++k) sum[k] += widen(in.v[k]);
        ++count;
      }
    }
    Lane<T, V> out;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      out.v[k] = narrow<T>(count == 0 ? C{} : sum[k] / static_cast<C>(count));
    }
    reinterpret_cast<Lane<T, V>*>(y)[i] = out;
  }
};

// A pixel's part of the gradient: of the windows of which it is the largest, in their order.
template <class T, int V>
struct LargestGradient {
  Sizes s;
  const T* dy;
  const uint8_t* place;
  T* dx;

  __device__ __forceinline__ void operator()(int64_t i) const {
    uint32_t image = static_cast<uint32_t>(i);
    const int lane = s.lanes.split(image), px = s.columns.split(image), py = s.rows.split(image);
    const auto lanes = static_cast<int>(s.lanes.divisor);
    ComputeType<T> sum[V] = {};
    for (int oy = s.h.first_window(py); oy < s.h.end_window(py); ++oy) {
      for (int ox = s.w.first_window(px); ox < s.w.end_window(px); ++ox) {
        const int mine = (py - s.h.origin(oy)) * s.w.window + px - s.w.origin(ox);
        const int window = (static_cast<int>(image) * s.h.output + oy) * s.w.output + ox;
        const int at = window * lanes + lane;
        const Lane<uint8_t, V> where = reinterpret_cast<const Lane<uint8_t, V>*>(place)[at];
        const Lane<T, V> g = reinterpret_cast<const Lane<T, V>*>(dy)[at];
#pragma unroll
        for (int k = 0; k < V; ++k) {
          if (where.v[k] == mine) sum[k] += widen(g.v[k]);
        }
      }
    }
    Lane<T, V> out;
#pragma unroll
    for (int k = 0; k < V; ++k) out.v[k] = narrow<T>(sum[k]);
    reinterpret_cast<Lane<T, V>*>(dx)[i] = out;
  }
};

template <class T, int V>
Status pool(KernelContext& ctx, DeviceEngine::Pool kind, const DeviceEngine::Pooling& sizes,
            const T* x, const T* dy, T* y) {
  const int64_t pixels = sizes.axes[1].input * sizes.axes[2].input;
  const int64_t windows = sizes.axes[1].output * sizes.axes[2].output;
  const int64_t lanes = sizes.batch * sizes.channels / V;
  const Sizes of_windows(sizes, V, false);
  if (kind == DeviceEngine::Pool::kMax) {
    return for_each(ctx, windows * lanes, LargestOfImages<T, V, false>{of_windows, x, y, nullptr});
  }
  if (kind == DeviceEngine::Pool::kAverage) {
    return for_each(ctx, windows * lanes, MeanOfImages<T, V>{of_windows, x, y});
  }
  MR_TRY_ASSIGN(Tensor places, ctx.allocate_temp(DType::kUInt8, Shape{windows * lanes * V}));
  uint8_t* const place = static_cast<uint8_t*>(places.mutable_raw());
  MR_TRY(
      for_each(ctx, windows * lanes, LargestOfImages<T, V, true>{of_windows, x, nullptr, place}));
  return for_each(ctx, pixels * lanes, LargestGradient<T, V>{Sizes(sizes, V, true), dy, place, y});
}

}  // namespace

Status device_pool_images(KernelContext& ctx, DeviceEngine::Pool kind, DType dtype,
                          const DeviceEngine::Pooling& sizes, const void* x, const void* dy,
                          void* y) {
  using Pool = DeviceEngine::Pool;
  if (kind != Pool::kMax && kind != Pool::kAverage && kind != Pool::kMaxGradient) {
    return unimplemented("this kind of pool");
  }
  const DeviceEngine::Axis *depth = &sizes.axes[0], *h = &sizes.axes[1], *w = &sizes.axes[2];
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  const int64_t of_image = sizes.channels * sizes.batch;
  if (depth->input != 1 || depth->output != 1 || depth->window != 1 || depth->before != 0) {
    return unimplemented("pools of volumes");
  }
  for (const DeviceEngine::Axis* axis : {h, w}) {
    if (axis->dilation != 1 || axis->before < 0 || axis->window > 255 || axis->stride > 1 << 20) {
      return unimplemented("such a window");
    }
  }
  if (h->window * w->window > 255 || of_image <= 0 || h->input * w->input > kMost / of_image ||
      h->output * w->output > kMost / of_image) {
    return unimplemented("a pool of this size");
  }
  return dispatch<FloatingTypes>(dtype, [&]<class T>() -> Status {
    constexpr int kLane = kLaneBytes / sizeof(T);
    const T *from = static_cast<const T*>(x), *gradient = static_cast<const T*>(dy);
    T* const to = static_cast<T*>(y);
    if (fits_lanes(sizes.channels, sizeof(T), from, gradient, to)) {
      return pool<T, kLane>(ctx, kind, sizes, from, gradient, to);
    }
    return pool<T, 1>(ctx, kind, sizes, from, gradient, to);
  });
}

}  // namespace millrace
