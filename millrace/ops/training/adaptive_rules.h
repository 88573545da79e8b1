#pragma once

#include "millrace/ops/training/optimizer_info.h"
#include "millrace/ops/vector.h"

// Optimisers with a rate for each element, from running moments of the gradient. See
// optimizer_rules.h.

namespace millrace {
inline namespace MR_ISA_NAMESPACE {

struct Adagrad {
  static constexpr OptimizerInfo info = {.name = "Adagrad",
                                         .doc = "accum += grad^2; var -= lr * grad / sqrt(accum).",
                                         .slots = {"var", "accum"},
                                         .arguments = {"lr", gradient("grad")},
                                         .cost = 0.8F,
                                         .flag = {"update_slots", true, "Whether accum changes."}};
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

struct AdagradV2 {
  static constexpr OptimizerInfo info = {
      .name = "AdagradV2",
      .doc = "accum += grad^2; var -= lr * grad / (sqrt(accum) + epsilon).",
      .slots = {"var", "accum"},
      .arguments = {"lr", "epsilon", gradient("grad")},
      .cost = 0.8F,
      .flag = {"update_slots", true, "Whether accum changes."}};
  template <class T, bool kUpdateSlots>
  struct Step {
    T lr, epsilon;
    MR_VECTOR_FN explicit Step(const T* s) : lr(s[0]), epsilon(s[1]) {}
    template <class V>
    MR_VECTOR_FN void operator()(V grad, V* slot) const {
      V& accum = slot[1];
      if constexpr (kUpdateSlots) accum += grad * grad;
      slot[0] -= grad * lr / (vec::sqrt(accum) + epsilon);
    }
  };
};

struct Adadelta {
  static constexpr OptimizerInfo info = {
      .name = "Adadelta",
      .doc =
          "accum = rho * accum + (1 - rho) * grad^2;\n"
          "update = sqrt(accum_update + epsilon) / sqrt(accum + epsilon) * grad;\n"
          "accum_update = rho * accum_update + (1 - rho) * update^2; var -= lr * update.",
      .slots = {"var", "accum", "accum_update"},
      .arguments = {"lr", "rho", "epsilon", gradient("grad")},
      .cost = 1.2F};
  template <class T, bool>
  struct Step {
    T lr, rho, rest, epsilon;
    MR_VECTOR_FN explicit Step(const T* s)
        : lr(s[0]), rho(s[1]), rest(T(1) - s[1]), epsilon(s[2]) {}
    template <class V>
    MR_VECTOR_FN void operator()(V grad, V* slot) const {
      V &accum = slot[1], &accum_update = slot[2];
      accum = accum * rho + grad * grad * rest;
      const V update = vec::sqrt(accum_update + epsilon) / vec::sqrt(accum + epsilon) * grad;
      accum_update = accum_update * rho + update * update * rest;
      slot[0] -= update * lr;
    }
  };
};

// lr with the moments' bias towards their start at zero taken out.
template <class T>
MR_VECTOR_FN T unbiased_rate(T lr, T beta1_power, T beta2_power) {
  return lr * vec::sqrt(T(1) - beta2_power) / (T(1) - beta1_power);
}

struct Adam {
  static constexpr OptimizerInfo info = {
      .name = "Adam",
      .doc =
          "m += (grad - m) * (1 - beta1); v += (grad^2 - v) * (1 - beta2);\n"
          "var -= lr * sqrt(1 - beta2_power) / (1 - beta1_power) * m / (sqrt(v) + epsilon).",
      .slots = {"var", "m", "v"},
      .arguments = {"beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon",
                    gradient("grad")},
      .cost = 1.2F,
      .flag = {"use_nesterov", false, "Uses grad * (1 - beta1) + beta1 * m in place of m."}};
  template <class T, bool kNesterov>
  struct Step {
    T alpha, beta1, rest1, rest2, epsilon;
    MR_VECTOR_FN explicit Step(const T* s)
        : alpha(unbiased_rate(s[2], s[0], s[1])),
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

struct AdamW {
  static constexpr OptimizerInfo info = {
      .name = "AdamW",
      .doc = "var -= lr * weight_decay * var, then as Adam: the decay does not enter the moments.",
      .slots = {"var", "m", "v"},
      .arguments = {"beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "weight_decay",
                    gradient("grad")},
      .cost = 1.2F,
      .forms = kDenseForms};
  template <class T, bool>
  struct Step {
    Adam::Step<T, false> adam;
    T keep;
    MR_VECTOR_FN explicit Step(const T* s) : adam(s), keep(T(1) - s[2] * s[6]) {}
    template <class V>
    MR_VECTOR_FN void operator()(V grad, V* slot) const {
      slot[0] *= keep;
      adam(grad, slot);
    }
  };
};

struct Lamb {
  static constexpr OptimizerInfo info = {
      .name = "Lamb",
      .doc =
          "m += (grad - m) * (1 - beta1); v += (grad^2 - v) * (1 - beta2);\n"
          "direction = m / (1 - beta1_power) / (sqrt(v / (1 - beta2_power)) + epsilon) +\n"
          "weight_decay * var; var -= lr * norm(var) / norm(direction) * direction. A norm that\n"
          "is zero leaves the ratio out.",
      .slots = {"var", "m", "v"},
      .arguments = {"beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon", "weight_decay",
                    gradient("grad")},
      .cost = 1.2F,
      .forms = kDenseForms,
      .trust_ratio = true};
  template <class T, bool>
  struct Step {
    T scale1, scale2, rate, rest1, rest2, epsilon, decay;
    MR_VECTOR_FN explicit Step(const T* s)
        : scale1(T(1) / (T(1) - s[0])),
          scale2(T(1) / (T(1) - s[1])),
          rate(s[2] * s[7]),
          rest1(T(1) - s[3]),
          rest2(T(1) - s[4]),
          epsilon(s[5]),
          decay(s[6]) {}
    // Updates the moments.
    template <class V>
    MR_VECTOR_FN V direction(V grad, V* slot) const {
      V &m = slot[1], &v = slot[2];
      m += (grad - m) * rest1;
      v += (grad * grad - v) * rest2;
      return m * scale1 / (vec::sqrt(v * scale2) + epsilon) + slot[0] * decay;
    }
    template <class V>
    MR_VECTOR_FN void operator()(V grad, V* slot) const {
      slot[0] -= direction(grad, slot) * rate;
    }
  };
};

struct AdamWithAmsgrad {
  static constexpr OptimizerInfo info = {
      .name = "AdamWithAmsgrad",
      .doc =
          "m += (grad - m) * (1 - beta1); v += (grad^2 - v) * (1 - beta2); vhat = max(vhat, v);\n"
          "var -= lr * sqrt(1 - beta2_power) / (1 - beta1_power) * m / (sqrt(vhat) + epsilon).",
      .slots = {"var", "m", "v", "vhat"},
      .arguments = {"beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon",
                    gradient("grad")},
      .cost = 1.5F,
      .forms = kResourceApply};
  template <class T, bool>
  struct Step {
    T alpha, rest1, rest2, epsilon;
    MR_VECTOR_FN explicit Step(const T* s)
        : alpha(unbiased_rate(s[2], s[0], s[1])),
          rest1(T(1) - s[3]),
          rest2(T(1) - s[4]),
          epsilon(s[5]) {}
    template <class V>
    MR_VECTOR_FN void operator()(V grad, V* slot) const {
      V &m = slot[1], &v = slot[2], &vhat = slot[3];
      m += (grad - m) * rest1;
      v += (grad * grad - v) * rest2;
      vhat = vec::max(vhat, v);
      slot[0] -= m * alpha / (vec::sqrt(vhat) + epsilon);
    }
  };
};

struct AdaMax {
  static constexpr OptimizerInfo info = {
      .name = "AdaMax",
      .doc =
          "m += (grad - m) * (1 - beta1); v = max(beta2 * v, abs(grad));\n"
          "var -= lr / (1 - beta1_power) * m / (v + epsilon).",
      .slots = {"var", "m", "v"},
      .arguments = {"beta1_power", "lr", "beta1", "beta2", "epsilon", gradient("grad")},
      .cost = 1.2F,
      .forms = kDenseForms};
  template <class T, bool>
  struct Step {
    T alpha, rest1, beta2, epsilon;
    MR_VECTOR_FN explicit Step(const T* s)
        : alpha(s[1] / (T(1) - s[0])), rest1(T(1) - s[2]), beta2(s[3]), epsilon(s[4]) {}
    template <class V>
    MR_VECTOR_FN void operator()(V grad, V* slot) const {
      V &m = slot[1], &v = slot[2];
      m += (grad - m) * rest1;
      v = vec::max(v * beta2, vec::abs(grad));
      slot[0] -= m / (v + epsilon) * alpha;
    }
  };
};

struct RmsProp {
  static constexpr OptimizerInfo info = {
      .name = "RMSProp",
      .doc =
          "ms += (grad^2 - ms) * (1 - rho);\n"
          "mom = momentum * mom + lr * grad / sqrt(ms + epsilon); var -= mom.",
      .slots = {"var", "ms", "mom"},
      .arguments = {"lr", "rho", "momentum", "epsilon", gradient("grad")},
      .cost = 1.2F};
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
      .name = "CenteredRMSProp",
      .doc =
          "mg += (grad - mg) * (1 - rho); ms += (grad^2 - ms) * (1 - rho);\n"
          "mom = momentum * mom + lr * grad / sqrt(ms - mg^2 + epsilon); var -= mom.",
      .slots = {"var", "mg", "ms", "mom"},
      .arguments = {"lr", "rho", "momentum", "epsilon", gradient("grad")},
      .cost = 1.5F};
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

}  // namespace MR_ISA_NAMESPACE
}  // namespace millrace
