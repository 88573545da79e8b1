#pragma once

#include "millrace/ops/training/optimizer_info.h"
#include "millrace/ops/vector.h"

// Optimisers that step along the gradient or a running sum of it. See optimizer_rules.h.

namespace millrace {
inline namespace MR_ISA_NAMESPACE {

struct GradientDescent {
  static constexpr OptimizerInfo info = {.name = "GradientDescent",
                                         .doc = "var -= alpha * delta.",
                                         .slots = {"var"},
                                         .arguments = {"alpha", gradient("delta")},
                                         .cost = 0.3F};
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
  static constexpr OptimizerInfo info = {
      .name = "Momentum",
      .doc = "accum = momentum * accum + grad; var -= lr * accum.",
      .slots = {"var", "accum"},
      .arguments = {"lr", gradient("grad"), "momentum"},
      .cost = 0.5F,
      .flag = {"use_nesterov", false, "Steps by grad * lr + accum * momentum * lr instead."}};
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

struct KerasMomentum {
  static constexpr OptimizerInfo info = {
      .name = "KerasMomentum",
      .doc = "accum = momentum * accum - lr * grad; var += accum.",
      .slots = {"var", "accum"},
      .arguments = {"lr", gradient("grad"), "momentum"},
      .cost = 0.5F,
      .forms = kResourceApply | kResourceSparseApply,
      .flag = {"use_nesterov", false, "Steps by accum * momentum - grad * lr instead."}};
  template <class T, bool kNesterov>
  struct Step {
    T lr, momentum;
    MR_VECTOR_FN explicit Step(const T* s) : lr(s[0]), momentum(s[1]) {}
    template <class V>
    MR_VECTOR_FN void operator()(V grad, V* slot) const {
      V& accum = slot[1];
      accum = accum * momentum - grad * lr;
      if constexpr (kNesterov) {
        slot[0] += accum * momentum - grad * lr;
      } else {
        slot[0] += accum;
      }
    }
  };
};

// sign(grad) * sign(m): 1 where they agree, -1 where they do not, 0 where one is zero.
template <class V>
MR_VECTOR_FN V agreement(V grad, V m) {
  const V zero = {};
  const V signs = vec::copysign(vec::lit<V>(1), grad) * vec::copysign(vec::lit<V>(1), m);
  const V nonzero = grad == zero ? zero : signs;
  return m == zero ? zero : nonzero;
}

struct AddSign {
  static constexpr OptimizerInfo info = {
      .name = "AddSign",
      .doc =
          "m = beta * m + (1 - beta) * grad;\n"
          "var -= lr * (alpha + sign_decay * sign(grad) * sign(m)) * grad.",
      .slots = {"var", "m"},
      .arguments = {"lr", "alpha", "sign_decay", "beta", gradient("grad")},
      .cost = 0.6F,
      .forms = kDenseForms};
  template <class T, bool>
  struct Step {
    T lr, alpha, sign_decay, beta;
    MR_VECTOR_FN explicit Step(const T* s) : lr(s[0]), alpha(s[1]), sign_decay(s[2]), beta(s[3]) {}
    template <class V>
    MR_VECTOR_FN void operator()(V grad, V* slot) const {
      V& m = slot[1];
      m = m * beta + grad * (T(1) - beta);
      slot[0] -= (agreement(grad, m) * sign_decay + alpha) * lr * grad;
    }
  };
};

struct PowerSign {
  static constexpr OptimizerInfo info = {
      .name = "PowerSign",
      .doc =
          "m = beta * m + (1 - beta) * grad;\n"
          "var -= lr * exp(logbase * sign_decay * sign(grad) * sign(m)) * grad.",
      .slots = {"var", "m"},
      .arguments = {"lr", "logbase", "sign_decay", "beta", gradient("grad")},
      .cost = 0.6F,
      .forms = kDenseForms};
  template <class T, bool>
  struct Step {
    // The rates where gradient and average agree, disagree, and where one of them is zero.
    T agree, disagree, neutral, beta;
    MR_VECTOR_FN explicit Step(const T* s)
        : agree(s[0] * vec::exp(s[1] * s[2])),
          disagree(s[0] * vec::exp(-(s[1] * s[2]))),
          neutral(s[0]),
          beta(s[3]) {}
    template <class V>
    MR_VECTOR_FN void operator()(V grad, V* slot) const {
      V& m = slot[1];
      m = m * beta + grad * (T(1) - beta);
      const V zero = {};
      const V sign = agreement(grad, m);
      const V other = sign < zero ? zero + disagree : zero + neutral;
      slot[0] -= (sign > zero ? zero + agree : other) * grad;
    }
  };
};

}  // namespace MR_ISA_NAMESPACE
}  // namespace millrace
