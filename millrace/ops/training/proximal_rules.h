#pragma once

#include "millrace/ops/training/optimizer_info.h"
#include "millrace/ops/vector.h"

// Optimisers that solve for l1 and l2 regularisation in closed form: l1 makes elements exactly
// zero. See optimizer_rules.h.

namespace millrace {
inline namespace MR_ISA_NAMESPACE {

// x moved towards zero by `by`, which is not negative, and not past it.
template <class V>
MR_VECTOR_FN V shrink(V x, V by) {
  return vec::copysign(vec::max(vec::abs(x) - by, V{}), x);
}

// A regularisation strength; below zero there is none.
template <class T>
MR_VECTOR_FN T strength(T l) {
  return l > T(0) ? l : T(0);
}

struct ProximalGradientDescent {
  static constexpr OptimizerInfo info = {
      .name = "ProximalGradientDescent",
      .doc =
          "prox = var - alpha * delta;\n"
          "var = sign(prox) * max(abs(prox) - alpha * l1, 0) / (1 + alpha * l2).",
      .slots = {"var"},
      .arguments = {"alpha", "l1", "l2", gradient("delta")},
      .cost = 0.5F};
  template <class T, bool>
  struct Step {
    T alpha, l1, denominator;
    MR_VECTOR_FN explicit Step(const T* s)
        : alpha(s[0]), l1(s[0] * strength(s[1])), denominator(T(1) + s[0] * strength(s[2])) {}
    template <class V>
    MR_VECTOR_FN void operator()(V grad, V* slot) const {
      slot[0] = shrink(slot[0] - grad * alpha, V{} + l1) / denominator;
    }
  };
};

struct ProximalAdagrad {
  static constexpr OptimizerInfo info = {
      .name = "ProximalAdagrad",
      .doc =
          "accum += grad^2; rate = lr / sqrt(accum); prox = var - rate * grad;\n"
          "var = sign(prox) * max(abs(prox) - rate * l1, 0) / (1 + rate * l2).",
      .slots = {"var", "accum"},
      .arguments = {{"lr", ArgumentKind::kPositive},
                    {"l1", ArgumentKind::kNonNegative},
                    {"l2", ArgumentKind::kNonNegative},
                    gradient("grad")},
      .cost = 1.0F};
  template <class T, bool>
  struct Step {
    T lr, l1, l2;
    MR_VECTOR_FN explicit Step(const T* s) : lr(s[0]), l1(s[1]), l2(s[2]) {}
    template <class V>
    MR_VECTOR_FN void operator()(V grad, V* slot) const {
      V& accum = slot[1];
      accum += grad * grad;
      const V rate = (V{} + lr) / vec::sqrt(accum);
      slot[0] = shrink(slot[0] - grad * rate, rate * l1) / (rate * l2 + T(1));
    }
  };
};

struct AdagradDa {
  static constexpr OptimizerInfo info = {
      .name = "AdagradDA",
      .doc =
          "With g for gradient_accumulator, gg for gradient_squared_accumulator, t for\n"
          "global_step: g += grad; gg += grad^2;\n"
          "var = -lr * sign(g) * max(abs(g) - t * l1, 0) / (t * l2 * lr + sqrt(gg)).",
      .slots = {"var", "gradient_accumulator", "gradient_squared_accumulator"},
      .arguments = {gradient("grad"), "lr", "l1", "l2", {"global_step", ArgumentKind::kStep}},
      .cost = 1.0F};
  template <class T, bool>
  struct Step {
    T lr, l1, l2;
    MR_VECTOR_FN explicit Step(const T* s)
        : lr(s[0]), l1(s[3] * strength(s[1])), l2(s[3] * s[2] * s[0]) {}
    template <class V>
    MR_VECTOR_FN void operator()(V grad, V* slot) const {
      V &g = slot[1], &gg = slot[2];
      g += grad;
      gg += grad * grad;
      slot[0] = shrink(g, V{} + l1) * -lr / (vec::sqrt(gg) + l2);
    }
  };
};

// "Follow the regularised leader". The scalars begin with lr, l1, l2.
template <class T, bool kByRate>
struct FtrlStep {
  // With kByRate `linear` holds lr times what it holds otherwise.
  T lr, linear_scale, l1, l2, shrinkage, power;
  bool root;
  MR_VECTOR_FN FtrlStep(const T* s, T l2_shrinkage, T lr_power)
      : lr(s[0]),
        linear_scale(kByRate ? s[0] : T(1)),
        l1(s[1] * linear_scale),
        l2(T(2) * s[2] * linear_scale),
        shrinkage(T(2) * l2_shrinkage),
        power(-lr_power),
        root(lr_power == T(-0.5)) {}

  // accum^-lr_power
  template <class V>
  MR_VECTOR_FN V raise(V accum) const {
    return root ? vec::sqrt(accum) : vec::pow(accum, V{} + power);
  }

  template <class V>
  MR_VECTOR_FN void operator()(V grad, V* slot) const {
    V &var = slot[0], &accum = slot[1], &linear = slot[2];
    const V new_accum = accum + grad * grad;
    const V before = raise(accum), after = raise(new_accum);
    const V step = (grad + var * shrinkage) * linear_scale;
    V scaled = after;
    if constexpr (kByRate) {
      linear += step - (after - before) * var;
    } else {
      linear += step - (after - before) / lr * var;
      scaled = after / lr;
    }
    var = -shrink(linear, V{} + l1) / (scaled + l2);
    accum = new_accum;
  }
};

struct Ftrl {
  static constexpr OptimizerInfo info = {
      .name = "Ftrl",
      .doc =
          "new_accum = accum + grad^2;\n"
          "linear += grad - (new_accum^-lr_power - accum^-lr_power) / lr * var;\n"
          "quadratic = new_accum^-lr_power / lr + 2 * l2;\n"
          "var = -sign(linear) * max(abs(linear) - l1, 0) / quadratic; accum = new_accum.",
      .slots = {"var", "accum", "linear"},
      .arguments = {gradient("grad"),
                    {"lr", ArgumentKind::kPositiveUnlessFlag},
                    {"l1", ArgumentKind::kNonNegative},
                    {"l2", ArgumentKind::kNonNegative},
                    {"lr_power", ArgumentKind::kNonPositive}},
      .cost = 1.5F,
      .flag = {"multiply_linear_by_lr", false,
               "linear holds lr times as much, so lr may be zero."}};
  template <class T, bool kByRate>
  struct Step : FtrlStep<T, kByRate> {
    MR_VECTOR_FN explicit Step(const T* s) : FtrlStep<T, kByRate>(s, T(0), s[3]) {}
  };
};

struct FtrlV2 {
  static constexpr OptimizerInfo info = {
      .name = "FtrlV2",
      .doc = "As Ftrl, but 2 * l2_shrinkage * var is added to the gradient that enters linear.",
      .slots = {"var", "accum", "linear"},
      .arguments = {gradient("grad"),
                    {"lr", ArgumentKind::kPositiveUnlessFlag},
                    {"l1", ArgumentKind::kNonNegative},
                    {"l2", ArgumentKind::kNonNegative},
                    {"l2_shrinkage", ArgumentKind::kNonNegative},
                    {"lr_power", ArgumentKind::kNonPositive}},
      .cost = 1.5F,
      .flag = {"multiply_linear_by_lr", false,
               "linear holds lr times as much, so lr may be zero."}};
  template <class T, bool kByRate>
  struct Step : FtrlStep<T, kByRate> {
    MR_VECTOR_FN explicit Step(const T* s) : FtrlStep<T, kByRate>(s, s[3], s[4]) {}
  };
};

}  // namespace MR_ISA_NAMESPACE
}  // namespace millrace
