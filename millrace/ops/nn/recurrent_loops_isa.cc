#include "millrace/ops/nn/recurrent_loops.h"
#include "millrace/ops/vector.h"

namespace millrace {
namespace {

// A vector, or one element where V is that.
template <class V, class T>
MR_VECTOR_FN V get(const T* p) {
  if constexpr (vec::is_vec<V>) {
    return vec::load(p);
  } else {
    return *p;
  }
}
template <class V, class T>
MR_VECTOR_FN void put(T* p, V v) {
  if constexpr (vec::is_vec<V>) {
    vec::store(p, v);
  } else {
    *p = v;
  }
}

// Step::at<V>(units, k) for all of them, vectors first.
template <class Step, class T, class Units>
void for_all(int64_t n, const Units& units) {
  int64_t k = 0;
  for (; k + vec::kLanes<T> <= n; k += vec::kLanes<T>) Step::template at<vec::Vec<T>>(units, k);
  for (; k < n; ++k) Step::template at<T>(units, k);
}

template <class T>
struct Lstm {
  using U = LstmUnits<T>;

  template <class V>
  MR_VECTOR_FN static V sum(const U& u, int gate, int64_t k) {
    return get<V>(u.sums[gate] + k) + get<V>(u.bias[gate] + k);
  }

  template <class V>
  MR_VECTOR_FN static void at(const U& u, int64_t k) {
    const bool peeps = u.peephole[0] != nullptr;
    const V cs_prev = get<V>(u.cs_prev + k);
    V into = sum<V>(u, U::kInput, k);
    V forget = sum<V>(u, U::kForget, k) + u.forget_bias;
    V out = sum<V>(u, U::kOutput, k);
    if (peeps) {
      into += get<V>(u.peephole[0] + k) * cs_prev;
      forget += get<V>(u.peephole[1] + k) * cs_prev;
    }
    const V i = vec::sigmoid(into), f = vec::sigmoid(forget);
    const V ci = vec::tanh(sum<V>(u, U::kCandidate, k));
    V cs = f * cs_prev + i * ci;
    if (u.clip > 0) {
      const V clip = V{} + u.clip;
      cs = cs > clip ? clip : cs;
      cs = cs < -clip ? -clip : cs;
    }
    if (peeps) out += get<V>(u.peephole[2] + k) * cs;
    const V o = vec::sigmoid(out), co = vec::tanh(cs);
    put(u.i + k, i);
    put(u.cs + k, cs);
    put(u.f + k, f);
    put(u.o + k, o);
    put(u.ci + k, ci);
    put(u.co + k, co);
    put(u.h + k, co * o);
  }
};

template <class T>
struct LstmGrad {
  using U = LstmGradUnits<T>;

  template <class V>
  MR_VECTOR_FN static V both(const T* grad, const T* after, int64_t k) {
    const V g = get<V>(grad + k);
    return after != nullptr ? get<V>(after + k) + g : g;
  }

  template <class V>
  MR_VECTOR_FN static void at(const U& u, int64_t k) {
    const V one = vec::lit<V>(1);
    const bool peeps = u.peephole[0] != nullptr;
    const V i = get<V>(u.i + k), f = get<V>(u.f + k), o = get<V>(u.o + k);
    const V ci = get<V>(u.ci + k), co = get<V>(u.co + k);
    const V h_grad = both<V>(u.h_grad, u.h_grad_after, k);
    const V out = o * (one - o) * h_grad * co;
    V cs_grad = (one - co * co) * h_grad * o + both<V>(u.cs_grad, u.cs_grad_after, k);
    if (peeps) cs_grad += out * get<V>(u.peephole[2] + k);
    const V candidate = (one - ci * ci) * cs_grad * i;
    const V forget = f * (one - f) * cs_grad * get<V>(u.cs_prev + k);
    const V into = i * (one - i) * cs_grad * ci;
    V cs_prev_grad = cs_grad * f;
    if (peeps) {
      cs_prev_grad += into * get<V>(u.peephole[0] + k);
      cs_prev_grad += forget * get<V>(u.peephole[1] + k);
    }
    put(u.sums_grad[LstmUnits<T>::kInput] + k, into);
    put(u.sums_grad[LstmUnits<T>::kCandidate] + k, candidate);
    put(u.sums_grad[LstmUnits<T>::kForget] + k, forget);
    put(u.sums_grad[LstmUnits<T>::kOutput] + k, out);
    put(u.cs_prev_grad + k, cs_prev_grad);
  }
};

template <class T>
struct GruGates {
  template <class V>
  MR_VECTOR_FN static void at(const GruGateUnits<T>& u, int64_t k) {
    const V r = vec::sigmoid(get<V>(u.r_sums + k) + get<V>(u.r_bias + k));
    put(u.r + k, r);
    put(u.u + k, vec::sigmoid(get<V>(u.u_sums + k) + get<V>(u.u_bias + k)));
    put(u.h_prev_reset + k, r * get<V>(u.h_prev + k));
  }
};

template <class T>
struct Gru {
  template <class V>
  MR_VECTOR_FN static void at(const GruUnits<T>& units, int64_t k) {
    const V c = vec::tanh(get<V>(units.c_sums + k) + get<V>(units.c_bias + k));
    const V u = get<V>(units.u + k);
    put(units.c + k, c);
    put(units.h + k, u * get<V>(units.h_prev + k) + (vec::lit<V>(1) - u) * c);
  }
};

template <class T>
struct GruGrad {
  template <class V>
  MR_VECTOR_FN static void at(const GruGradUnits<T>& units, int64_t k) {
    const V one = vec::lit<V>(1);
    const V u = get<V>(units.u + k), c = get<V>(units.c + k), h_grad = get<V>(units.h_grad + k);
    put(units.c_sums_grad + k, h_grad * (one - u) * (one - c * c));
    put(units.u_sums_grad + k, h_grad * (get<V>(units.h_prev + k) - c) * u * (one - u));
  }
};

template <class T>
struct GruResetGrad {
  template <class V>
  MR_VECTOR_FN static void at(const GruResetGradUnits<T>& units, int64_t k) {
    const V r = get<V>(units.r + k), reset_grad = get<V>(units.reset_grad + k);
    put(units.r_sums_grad + k, reset_grad * get<V>(units.h_prev + k) * r * (vec::lit<V>(1) - r));
    put(units.h_prev_grad + k, reset_grad * r + get<V>(units.h_grad + k) * get<V>(units.u + k));
  }
};

template <class T>
constexpr RecurrentLoops<T> kRecurrentLoops = {
    &for_all<Lstm<T>, T, LstmUnits<T>>,        &for_all<LstmGrad<T>, T, LstmGradUnits<T>>,
    &for_all<GruGates<T>, T, GruGateUnits<T>>, &for_all<Gru<T>, T, GruUnits<T>>,
    &for_all<GruGrad<T>, T, GruGradUnits<T>>,  &for_all<GruResetGrad<T>, T, GruResetGradUnits<T>>};

}  // namespace

template <>
const RecurrentLoops<float>& isa_table<RecurrentLoops<float>, Isa::MR_ISA>() {
  return kRecurrentLoops<float>;
}
template <>
const RecurrentLoops<double>& isa_table<RecurrentLoops<double>, Isa::MR_ISA>() {
  return kRecurrentLoops<double>;
}

}  // namespace millrace
