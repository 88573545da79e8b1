#include "millrace/ops/nn/depthwise_loops.h"
#include "millrace/ops/vector.h"

namespace millrace {
namespace {

struct Span {
  int64_t begin, end;
};

// AxisGeometry::first() and last().
MR_VECTOR_FN Span window_span(const AxisGeometry& axis, int64_t o) {
  const int64_t at = o * axis.stride - axis.before;
  const int64_t room = axis.input - at;
  const int64_t fit = room <= 0 ? 0 : (room + axis.dilation - 1) / axis.dilation;
  return {at >= 0 ? 0 : (-at + axis.dilation - 1) / axis.dilation,
          fit < axis.window ? fit : axis.window};
}

// The outputs [begin, end) that see the input through window element t.
MR_VECTOR_FN Span output_span(const AxisGeometry& axis, int64_t t) {
  const int64_t shift = t * axis.dilation - axis.before;
  const int64_t room = axis.input - shift;
  const int64_t fit = room <= 0 ? 0 : (room + axis.stride - 1) / axis.stride;
  const int64_t begin = shift >= 0 ? 0 : (-shift + axis.stride - 1) / axis.stride;
  const int64_t end = fit < axis.output ? fit : axis.output;
  return {begin, end < begin ? begin : end};
}

// The output that sees input element i through window element t; -1: none does.
MR_VECTOR_FN int64_t output_through(const AxisGeometry& axis, int64_t i, int64_t t) {
  const int64_t at = i + axis.before - t * axis.dilation;
  if (axis.stride == 1) return at >= 0 && at < axis.output ? at : -1;
  if (at < 0 || at % axis.stride != 0) return -1;
  return at / axis.stride < axis.output ? at / axis.stride : -1;
}

// Calls body(pointer to a V, first channel) for vectors, then for single channels.
template <class T, class Body>
MR_VECTOR_FN void for_each_channels(int64_t channels, Body body) {
  int64_t c = 0;
  for (; c + vec::kLanes<T> <= channels; c += vec::kLanes<T>) body(vec::Vec<T>{}, c);
  for (; c < channels; ++c) body(T{}, c);
}

template <class V, class T>
MR_VECTOR_FN V load_as(const T* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

// `count` pixels of the output from `ox` on, which all see the same elements of the window.
template <class V, int count, class T>
MR_VECTOR_FN void forward_pixels(const DepthwiseGeometry& g, const T* image, const T* filter,
                                 int64_t oy, int64_t ox, Span fx, int64_t c, T* out) {
  const Span fy = window_span(g.height, oy);
  const int64_t step = g.width.stride * g.channels;
  V sums[count] = {};
  for (int64_t y = fy.begin; y < fy.end; ++y) {
    const int64_t iy = oy * g.height.stride - g.height.before + y * g.height.dilation;
    for (int64_t x = fx.begin; x < fx.end; ++x) {
      const int64_t ix = ox * g.width.stride - g.width.before + x * g.width.dilation;
      const V f = load_as<V>(filter + (y * g.width.window + x) * g.channels + c);
      const T* const in = image + (iy * g.width.input + ix) * g.channels + c;
      for (int i = 0; i < count; ++i) sums[i] += load_as<V>(in + i * step) * f;
    }
  }
  for (int i = 0; i < count; ++i) __builtin_memcpy(out + i * g.channels, &sums[i], sizeof(V));
}

template <class T>
void depthwise_forward(const DepthwiseGeometry& g, const T* image, const T* filter, int64_t oy,
                       T* row) {
  constexpr int kPixels = 4;
  for (int64_t ox = 0; ox < g.width.output;) {
    const Span fx = window_span(g.width, ox);
    bool together = ox + kPixels <= g.width.output;
    for (int i = 1; together && i < kPixels; ++i) {
      const Span next = window_span(g.width, ox + i);
      together = next.begin == fx.begin && next.end == fx.end;
    }
    T* const out = row + ox * g.channels;
    for_each_channels<T>(
        g.channels, [&]<class V>(V, int64_t c) __attribute__((always_inline)) {
          if (together) {
            forward_pixels<V, kPixels>(g, image, filter, oy, ox, fx, c, out + c);
          } else {
            forward_pixels<V, 1>(g, image, filter, oy, ox, fx, c, out + c);
          }
        });
    ox += together ? kPixels : 1;
  }
}

template <class T>
void depthwise_backward_input(const DepthwiseGeometry& g, const T* filter, const T* dy, int64_t iy,
                              T* row) {
  for (int64_t ix = 0; ix < g.width.input; ++ix) {
    for_each_channels<T>(
        g.channels, [&]<class V>(V, int64_t c) __attribute__((always_inline)) {
          V sum = {};
          for (int64_t fy = 0; fy < g.height.window; ++fy) {
            const int64_t oy = output_through(g.height, iy, fy);
            if (oy < 0) continue;
            for (int64_t fx = 0; fx < g.width.window; ++fx) {
              const int64_t ox = output_through(g.width, ix, fx);
              if (ox < 0) continue;
              sum += load_as<V>(dy + (oy * g.width.output + ox) * g.channels + c) *
                     load_as<V>(filter + (fy * g.width.window + fx) * g.channels + c);
            }
          }
          __builtin_memcpy(row + ix * g.channels + c, &sum, sizeof sum);
        });
  }
}

template <class T>
void depthwise_backward_filter(const DepthwiseGeometry& g, const T* image, const T* dy_row,
                               int64_t oy, T* sums) {
  const Span fy = window_span(g.height, oy);
  for (int64_t y = fy.begin; y < fy.end; ++y) {
    const int64_t iy = oy * g.height.stride - g.height.before + y * g.height.dilation;
    for (int64_t x = 0; x < g.width.window; ++x) {
      const Span ox = output_span(g.width, x);
      const int64_t ix = ox.begin * g.width.stride - g.width.before + x * g.width.dilation;
      for_each_channels<T>(
          g.channels, [&]<class V>(V, int64_t c) __attribute__((always_inline)) {
            const T* in = image + (iy * g.width.input + ix) * g.channels + c;
            const T* dy = dy_row + ox.begin * g.channels + c;
            V sum = {};
            for (int64_t o = ox.begin; o < ox.end; ++o) {
              sum += load_as<V>(in) * load_as<V>(dy);
              in += g.width.stride * g.channels;
              dy += g.channels;
            }
            T* const to = sums + (y * g.width.window + x) * g.channels + c;
            sum += load_as<V>(to);
            __builtin_memcpy(to, &sum, sizeof sum);
          });
    }
  }
}

template <class T>
constexpr DepthwiseLoops<T> kDepthwiseLoops = {&depthwise_forward<T>, &depthwise_backward_input<T>,
                                               &depthwise_backward_filter<T>};

}  // namespace

template <>
const DepthwiseLoops<float>& isa_table<DepthwiseLoops<float>, Isa::MR_ISA>() {
  return kDepthwiseLoops<float>;
}
template <>
const DepthwiseLoops<double>& isa_table<DepthwiseLoops<double>, Isa::MR_ISA>() {
  return kDepthwiseLoops<double>;
}

}  // namespace millrace
