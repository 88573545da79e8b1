#pragma once

#include "millrace/ops/training/apply_loops.h"
#include "millrace/ops/vector.h"

// The table of optimisers. An entry has
//
//   info   names, in the order of the op's arguments;
//   Step   what happens to one element (or vector of them): made once per pass from the scalar
//          arguments, then called with the gradient and the slots, which it updates.
//
// apply.cc makes definitions and kernels of it, for reference and resource variables.

namespace millrace {
inline namespace MR_ISA_NAMESPACE {

struct OptimizerInfo {
  const char* name;  // of ApplyX and ResourceApplyX
  const char* doc;
  int num_slots;
  const char* arguments[10];   // slots, scalars and gradient; null after the last
  const char* gradient;        // which of them is the gradient
  float cost;                  // nanoseconds per float
  const char* flag = nullptr;  // an attribute that changes the formula
  bool flag_default = false;
  const char* flag_doc = "";
};

struct GradientDescent {
  static constexpr OptimizerInfo info = {
      "GradientDescent", "var -= alpha * delta.", 1, {"var", "alpha", "delta"}, "delta", 0.3F};
  template <class T, bool>
  struct Step {
    T alpha;
    MR_VECTOR_FN explicit Step(const T* s) : alpha(s[0]) {}
    template <class V>
    MR_VECTOR_FN void operator()(V grad, V* slot) const {
      slot[0] -= grad * alpha;
    }
  };
};

struct Momentum {
  static constexpr OptimizerInfo info = {"Momentum",
                                         "accum = momentum * accum + grad; var -= lr * accum.",
                                         2,
                                         {"var", "accum", "lr", "grad", "momentum"},
                                         "grad",
                                         0.5F,
                                         "use_nesterov",
                                         false,
                                         "Steps by grad * lr + accum * momentum * lr instead."};
  template <class T, bool kNesterov>
  struct Step {
    T lr, momentum;
    MR_VECTOR_FN explicit Step(const T* s) : lr(s[0]), momentum(s[1]) {}
    template <class V>
    MR_VECTOR_FN void operator()(V grad, V* slot) const {
      V& accum = slot[1];
      accum = accum * momentum + grad;
      if constexpr (kNesterov) {
        slot[0] -= grad * lr + accum * momentum * lr;
      } else {
        slot[0] -= accum * lr;
      }
    }
  };
};

struct Adagrad {
  static constexpr OptimizerInfo info = {"Adagrad",
                                         "accum += grad^2; var -= lr * grad / sqrt(accum).",
                                         2,
                                         {"var", "accum", "lr", "grad"},
                                         "grad",
                                         0.8F,
                                         "update_slots",
                                         true,
                                         "Whether accum changes."};
  template <class T, bool kUpdateSlots>
  struct Step {
    T lr;
    MR_VECTOR_FN explicit Step(const T* s) : lr(s[0]) {}
    template <class V>
    MR_VECTOR_FN void operator()(V grad, V* slot) const {
      V& accum = slot[1];
      if constexpr (kUpdateSlots) accum += grad * grad;
      slot[0] -= grad * lr * (vec::lit<V>(1) / vec::sqrt(accum));
    }
  };
};

struct Adam {
  static constexpr OptimizerInfo info = {
      "Adam",
      "m += (grad - m) * (1 - beta1); v += (grad^2 - v) * (1 - beta2);\n"
      "var -= lr * sqrt(1 - beta2_power) / (1 - beta1_power) * m / (sqrt(v) + epsilon).",
      3,
      {"var", "m", "v", "beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "grad"},
      "grad",
      1.2F,
      "use_nesterov",
      false,
      "Uses grad * (1 - beta1) + beta1 * m in place of m."};
  template <class T, bool kNesterov>
  struct Step {
    T alpha, beta1, rest1, rest2, epsilon;
    MR_VECTOR_FN explicit Step(const T* s)
        : alpha(s[2] * vec::sqrt(T(1) - s[1]) / (T(1) - s[0])),
          beta1(s[3]),
          rest1(T(1) - s[3]),
          rest2(T(1) - s[4]),
          epsilon(s[5]) {}
    template <class V>
    MR_VECTOR_FN void operator()(V grad, V* slot) const {
      V &m = slot[1], &v = slot[2];
      m += (grad - m) * rest1;
      v += (grad * grad - v) * rest2;
      if constexpr (kNesterov) {
        slot[0] -= (grad * rest1 + beta1 * m) * alpha / (vec::sqrt(v) + epsilon);
      } else {
        slot[0] -= m * alpha / (vec::sqrt(v) + epsilon);
      }
    }
  };
};

struct RmsProp {
  static constexpr OptimizerInfo info = {
      "RMSProp",
      "ms += (grad^2 - ms) * (1 - rho); mom = momentum * mom + lr * grad / sqrt(ms + epsilon);\n"
      "var -= mom.",
      3,
      {"var", "ms", "mom", "lr", "rho", "momentum", "epsilon", "grad"},
      "grad",
      1.2F};
  template <class T, bool>
  struct Step {
    T lr, rest, momentum, epsilon;
    MR_VECTOR_FN explicit Step(const T* s)
        : lr(s[0]), rest(T(1) - s[1]), momentum(s[2]), epsilon(s[3]) {}
    template <class V>
    MR_VECTOR_FN void operator()(V grad, V* slot) const {
      V &ms = slot[1], &mom = slot[2];
      ms += (grad * grad - ms) * rest;
      mom = mom * momentum + grad * lr / vec::sqrt(ms + epsilon);
      slot[0] -= mom;
    }
  };
};

struct CenteredRmsProp {
  static constexpr OptimizerInfo info = {
      "CenteredRMSProp",
      "mg += (grad - mg) * (1 - rho); ms += (grad^2 - ms) * (1 - rho);\n"
      "mom = momentum * mom + lr * grad / sqrt(ms - mg^2 + epsilon); var -= mom.",
      4,
      {"var", "mg", "ms", "mom", "lr", "rho", "momentum", "epsilon", "grad"},
      "grad",
      1.5F};
  template <class T, bool>
  struct Step {
    T lr, rest, momentum, epsilon;
    MR_VECTOR_FN explicit Step(const T* s)
        : lr(s[0]), rest(T(1) - s[1]), momentum(s[2]), epsilon(s[3]) {}
    template <class V>
    MR_VECTOR_FN void operator()(V grad, V* slot) const {
      V &mg = slot[1], &ms = slot[2], &mom = slot[3];
      ms += (grad * grad - ms) * rest;
      mg += (grad - mg) * rest;
      const V variance = (ms - mg * mg) + epsilon;
      mom = mom * momentum + grad * lr / vec::sqrt(variance);
      slot[0] -= mom;
    }
  };
};

template <class... Rules>
struct RuleList {};
using OptimizerRules = RuleList<GradientDescent, Momentum, Adagrad, Adam, RmsProp, CenteredRmsProp>;

template <class Rule, class T, bool kFlag>
void apply_elements(void* const* slots, const void* grad, const void* scalars, int64_t n) {
  constexpr int kSlots = Rule::info.num_slots;
  const typename Rule::template Step<T, kFlag> step(static_cast<const T*>(scalars));
  T* p[kSlots];
  for (int k = 0; k < kSlots; ++k) p[k] = static_cast<T*>(slots[k]);
  const T* g = static_cast<const T*>(grad);
  int64_t i = 0;
  for (; i + vec::kLanes<T> <= n; i += vec::kLanes<T>) {
    vec::Vec<T> v[kSlots];
    for (int k = 0; k < kSlots; ++k) v[k] = vec::load(p[k] + i);
    step(vec::load(g + i), v);
    for (int k = 0; k < kSlots; ++k) vec::store(p[k] + i, v[k]);
  }
  for (; i < n; ++i) {
    T v[kSlots];
    for (int k = 0; k < kSlots; ++k) v[k] = p[k][i];
    step(g[i], v);
    for (int k = 0; k < kSlots; ++k) p[k][i] = v[k];
  }
}

template <class Rule>
ApplyLoop loop_of(bool flag, DType dtype) {
  if (dtype == DType::kDouble) {
    return flag ? &apply_elements<Rule, double, true> : &apply_elements<Rule, double, false>;
  }
  return flag ? &apply_elements<Rule, float, true> : &apply_elements<Rule, float, false>;
}

template <class... Rules>
ApplyLoop pick_apply_loop(int rule, bool flag, DType dtype, RuleList<Rules...>) {
  using Pick = ApplyLoop (*)(bool, DType);
  constexpr Pick picks[] = {&loop_of<Rules>...};
  return picks[rule](flag, dtype);
}

}  // namespace MR_ISA_NAMESPACE
}  // namespace millrace
