#include "millrace/ops/nn/pool_loops.h"
#include "millrace/ops/vector.h"

namespace millrace {
namespace {

// The pixels [first, first + count) along one axis that a window sees.
struct Span {
  int64_t first, count;
};

MR_VECTOR_FN Span span(const AxisGeometry& axis, int64_t o) {
  const int64_t origin = o * axis.stride - axis.before;
  const int64_t first = origin < 0 ? 0 : origin;
  const int64_t end = origin + axis.window < axis.input ? origin + axis.window : axis.input;
  return {first, end > first ? end - first : 0};
}

// A window, as offsets of elements of the image.
struct Window {
  int64_t first;                       // of the first channel of the first pixel
  int64_t planes, rows, columns;       // how many pixels it sees along each axis
  int64_t plane_step, row_step, step;  // from one to the next

  MR_VECTOR_FN int64_t pixels() const { return planes * rows * columns; }
  // Calls body(offset, number) for every pixel, in order.
  template <class Body>
  MR_VECTOR_FN void for_each(Body body) const {
    int64_t number = 0;
    for (int64_t z = 0; z < planes; ++z) {
      for (int64_t y = 0; y < rows; ++y) {
        const int64_t line = first + z * plane_step + y * row_step;
        for (int64_t x = 0; x < columns; ++x) body(line + x * step, number++);
      }
    }
  }
};

// `count` vectors side by side, or single elements: enough of them to hide how long one takes.
template <class T, class Lanes, int count>
struct Group {
  using V = Lanes;
  static constexpr int kCount = count;
  static constexpr int kLanes = vec::is_vec<V> ? vec::kLanes<T> : 1;
  V v[count];

  static MR_VECTOR_FN Group load(const T* p) {
    Group group;
    for (int i = 0; i < count; ++i) __builtin_memcpy(&group.v[i], p + i * kLanes, sizeof(V));
    return group;
  }
  MR_VECTOR_FN void store(T* p) const {
    for (int i = 0; i < count; ++i) __builtin_memcpy(p + i * kLanes, &v[i], sizeof(V));
  }
};

// Calls body(group of zeros, window, channel, place) for every pixel of a row of the output and the
// channels [from, to) in groups: the group's first channel, and where in the row that is.
template <class T, class Body>
MR_VECTOR_FN void for_each_group_of_row(const PoolVolume& g, int64_t row, int64_t from, int64_t to,
                                        Body body) {
  constexpr int kVectors = 2, kL = vec::kLanes<T>;
  const int64_t row_step = g.width.input * g.channels;
  const Span z = span(g.depth, row / g.height.output), y = span(g.height, row % g.height.output);
  for (int64_t o = 0; o < g.width.output; ++o) {
    const Span x = span(g.width, o);
    const int64_t pixel = (z.first * g.height.input + y.first) * g.width.input + x.first;
    const Window window{pixel * g.channels,        z.count,  y.count,   x.count,
                        g.height.input * row_step, row_step, g.channels};
    const int64_t place = o * g.channels;
    int64_t c = from;
    for (; c + kVectors * kL <= to; c += kVectors * kL) {
      body(Group<T, vec::Vec<T>, kVectors>{}, window, c, place + c);
    }
    for (; c + kL <= to; c += kL) body(Group<T, vec::Vec<T>, 1>{}, window, c, place + c);
    for (; c < to; ++c) body(Group<T, T, 1>{}, window, c, place + c);
  }
}

// Whether x is larger than y: greater, or a NaN where y is none.
template <class V>
MR_VECTOR_FN auto larger(V x, V y) {
  if constexpr (vec::is_vec<V>) {
    return ~(x <= y) & (y == y);
  } else {
    return !(x <= y) && y == y;
  }
}

template <class T>
void max_row(const PoolVolume& g, const T* image, int64_t row, int64_t from, int64_t to, T* out) {
  for_each_group_of_row<T>(
      g, row, from, to,
      [&]<class G>(G, const Window& window, int64_t c, int64_t place)
          __attribute__((always_inline)) {
            G best = window.pixels() > 0 ? G::load(image + window.first + c) : G{};
            window.for_each([&](int64_t offset, int64_t) __attribute__((always_inline)) {
              const G x = G::load(image + offset + c);
              for (int i = 0; i < G::kCount; ++i) {
                best.v[i] = larger(x.v[i], best.v[i]) ? x.v[i] : best.v[i];
              }
            });
            best.store(out + place);
          });
}

template <class T>
void at_max_row(const PoolVolume& g, const T* image, const T* values, int64_t row, int64_t from,
                int64_t to, T* out) {
  for_each_group_of_row<T>(
      g, row, from, to,
      [&]<class G>(G, const Window& window, int64_t c, int64_t place)
          __attribute__((always_inline)) {
            const bool any = window.pixels() > 0;
            G best = any ? G::load(image + window.first + c) : G{};
            G found = any ? G::load(values + window.first + c) : G{};
            window.for_each([&](int64_t offset, int64_t) __attribute__((always_inline)) {
              const G x = G::load(image + offset + c), value = G::load(values + offset + c);
              for (int i = 0; i < G::kCount; ++i) {
                const auto better = larger(x.v[i], best.v[i]);
                best.v[i] = better ? x.v[i] : best.v[i];
                found.v[i] = better ? value.v[i] : found.v[i];
              }
            });
            found.store(out + place);
          });
}

// The sums of dx begin as +0 and so never are -0: to add +0 to one changes nothing.
template <class T>
void max_gradient_row(const PoolVolume& g, const T* image, const T* dy, int64_t row, int64_t from,
                      int64_t to, T* dx) {
  for_each_group_of_row<T>(
      g, row, from, to,
      [&]<class G>(G, const Window& window, int64_t c, int64_t place)
          __attribute__((always_inline)) {
            using V = typename G::V;
            using Number = vec::Bits<V>;
            using N = vec::Element<Number>;
            if (window.pixels() == 0) return;
            G best = G::load(image + window.first + c);
            Number at[G::kCount] = {};
            window.for_each([&](int64_t offset, int64_t number) __attribute__((always_inline)) {
              const G x = G::load(image + offset + c);
              for (int i = 0; i < G::kCount; ++i) {
                const auto better = larger(x.v[i], best.v[i]);
                best.v[i] = better ? x.v[i] : best.v[i];
                at[i] = better ? Number{} + static_cast<N>(number) : at[i];
              }
            });
            const G grad = G::load(dy + place);
            window.for_each([&](int64_t offset, int64_t number) __attribute__((always_inline)) {
              G sum = G::load(dx + offset + c);
              for (int i = 0; i < G::kCount; ++i) {
                sum.v[i] += at[i] == Number{} + static_cast<N>(number) ? grad.v[i] : V{};
              }
              sum.store(dx + offset + c);
            });
          });
}

template <class T>
void average_row(const PoolVolume& g, const T* image, int64_t row, int64_t from, int64_t to,
                 T* out) {
  for_each_group_of_row<T>(
      g, row, from, to,
      [&]<class G>(G sum, const Window& window, int64_t c, int64_t place)
          __attribute__((always_inline)) {
            window.for_each([&](int64_t offset, int64_t) __attribute__((always_inline)) {
              const G x = G::load(image + offset + c);
              for (int i = 0; i < G::kCount; ++i) sum.v[i] += x.v[i];
            });
            const T count = static_cast<T>(window.pixels() > 0 ? window.pixels() : 1);
            for (int i = 0; i < G::kCount; ++i) sum.v[i] /= count;
            sum.store(out + place);
          });
}

template <class T>
void average_gradient_row(const PoolVolume& g, const T* dy, int64_t row, int64_t from, int64_t to,
                          T* dx) {
  for_each_group_of_row<T>(
      g, row, from, to,
      [&]<class G>(G, const Window& window, int64_t c, int64_t place)
          __attribute__((always_inline)) {
            G share = G::load(dy + place);
            const T count = static_cast<T>(window.pixels());
            for (int i = 0; i < G::kCount; ++i) share.v[i] /= count;
            window.for_each([&](int64_t offset, int64_t) __attribute__((always_inline)) {
              G sum = G::load(dx + offset + c);
              for (int i = 0; i < G::kCount; ++i) sum.v[i] += share.v[i];
              sum.store(dx + offset + c);
            });
          });
}

template <class T>
constexpr PoolLoops<T> kPoolLoops = {&max_row<T>, &average_row<T>, &max_gradient_row<T>,
                                     &at_max_row<T>, &average_gradient_row<T>};

}  // namespace

template <>
const PoolLoops<float>& isa_table<PoolLoops<float>, Isa::MR_ISA>() {
  return kPoolLoops<float>;
}
template <>
const PoolLoops<double>& isa_table<PoolLoops<double>, Isa::MR_ISA>() {
  return kPoolLoops<double>;
}

}  // namespace millrace
