#include "millrace/ops/nn/lrn_loops.h"
#include "millrace/ops/vector.h"

namespace millrace {
namespace {

using Floats = vec::Vec<float>;

template <class V>
MR_VECTOR_FN V load_as(const float* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

// to[c] = f(V, c) for vectors of channels, then for single ones.
template <class F>
MR_VECTOR_FN void for_each_channel(int64_t channels, float* to, F f) {
  int64_t c = 0;
  for (; c + vec::kLanes<float> <= channels; c += vec::kLanes<float>) {
    vec::store(to + c, f(Floats{}, c));
  }
  for (; c < channels; ++c) to[c] = f(float{}, c);
}

// Channels with zeros on both sides, so that every window is whole. A sum that begins with +0 is
// never -0, so the zeros change none.
struct Padded {
  float* first;  // of the zeros in front
  int64_t channels, radius;

  MR_VECTOR_FN Padded(const LrnParameters& p, int64_t count, float* scratch)
      : first(scratch), channels(count), radius(p.radius < count ? p.radius : count) {
    for (int64_t i = 0; i < radius; ++i) first[i] = first[radius + channels + i] = 0;
  }
  MR_VECTOR_FN float* data() const { return first + radius; }
  // The sum over |d - c| <= radius, in order.
  template <class V>
  MR_VECTOR_FN V sum(V, int64_t c) const {
    V total = {};
    for (int64_t d = c; d <= c + 2 * radius; ++d) total += load_as<V>(first + d);
    return total;
  }
};

// norm[c] = bias + alpha sum of x[d]^2 over |d - c| <= radius
MR_VECTOR_FN void norms(const LrnParameters& p, const float* x, const Padded& squares,
                        float* norm) {
  for_each_channel(
      squares.channels, squares.data(), [&]<class V>(V, int64_t c) __attribute__((always_inline)) {
        return load_as<V>(x + c) * load_as<V>(x + c);
      });
  for_each_channel(
      squares.channels, norm, [&]<class V>(V zero, int64_t c) __attribute__((always_inline)) {
        return p.bias + p.alpha * squares.sum(zero, c);
      });
}

// norm^-beta, with the usual exponents written out.
template <class V>
MR_VECTOR_FN V power(V norm, float beta) {
  if (beta == 0.5F) return 1.0F / vec::sqrt(norm);
  if (beta == 0.75F) return 1.0F / (vec::sqrt(norm) * vec::sqrt(vec::sqrt(norm)));
  if (beta == 1.0F) return 1.0F / norm;
  return vec::pow(norm, vec::lit<V>(-beta));
}

void lrn_forward(const LrnParameters& p, const float* x, int64_t channels, float* scratch,
                 float* y) {
  const Padded squares(p, channels, scratch);
  float* const norm = squares.data() + channels + squares.radius;
  norms(p, x, squares, norm);
  for_each_channel(
      channels, y, [&]<class V>(V, int64_t c) __attribute__((always_inline)) {
        return load_as<V>(x + c) * power(load_as<V>(norm + c), p.beta);
      });
}

void lrn_backward(const LrnParameters& p, const float* x, const float* y, const float* dy,
                  int64_t channels, float* scratch, float* dx) {
  const Padded terms(p, channels, scratch);
  float* const norm = terms.data() + channels + terms.radius;
  norms(p, x, terms, norm);
  for_each_channel(
      channels, terms.data(), [&]<class V>(V, int64_t c) __attribute__((always_inline)) {
        return load_as<V>(dy + c) * load_as<V>(y + c) / load_as<V>(norm + c);
      });
  const float factor = 2 * p.alpha * p.beta;
  for_each_channel(
      channels, dx, [&]<class V>(V zero, int64_t c) __attribute__((always_inline)) {
        return load_as<V>(dy + c) * power(load_as<V>(norm + c), p.beta) -
               factor * load_as<V>(x + c) * terms.sum(zero, c);
      });
}

constexpr LrnLoops kLrnLoops = {&lrn_forward, &lrn_backward};

}  // namespace

template <>
const LrnLoops& isa_table<LrnLoops, Isa::MR_ISA>() {
  return kLrnLoops;
}

}  // namespace millrace
