#pragma once

#include "millrace/ops/training/adaptive_rules.h"
#include "millrace/ops/training/descent_rules.h"
#include "millrace/ops/training/optimizer_loops.h"
#include "millrace/ops/training/proximal_rules.h"

// The table of optimisers. An entry has
//
//   info   names, in the order of the op's arguments;
//   Step   what happens to one element (or vector of them): made once per pass from the scalar
//          arguments, then called with the gradient and the slots, which it updates.
//
// apply.cc makes the dense ops of it, sparse_apply.cc the sparse ones, both for reference and for
// resource variables.

namespace millrace {
inline namespace MR_ISA_NAMESPACE {

template <class... Rules>
struct RuleList {};
using OptimizerRules =
    RuleList<GradientDescent, Momentum, KerasMomentum, AddSign, PowerSign, Adagrad, AdagradV2,
             Adadelta, Adam, AdamW, AdamWithAmsgrad, AdaMax, RmsProp, CenteredRmsProp,
             ProximalGradientDescent, ProximalAdagrad, AdagradDa, Ftrl, FtrlV2>;

// One row, or all of a variable. What is left after whole vectors goes through one that is filled
// up with zeros.
template <class Step, int kSlots, class T>
MR_VECTOR_FN void apply_elements(const Step& step, T* const* p, const T* grad, int64_t n) {
  int64_t i = 0;
  for (; i + vec::kLanes<T> <= n; i += vec::kLanes<T>) {
    vec::Vec<T> v[kSlots];
    for (int k = 0; k < kSlots; ++k) v[k] = vec::load(p[k] + i);
    step(vec::load(grad + i), v);
    for (int k = 0; k < kSlots; ++k) vec::store(p[k] + i, v[k]);
  }
  if (i == n) return;
  const size_t bytes = static_cast<size_t>(n - i) * sizeof(T);
  vec::Vec<T> v[kSlots] = {}, g = {};
  for (int k = 0; k < kSlots; ++k) __builtin_memcpy(&v[k], p[k] + i, bytes);
  __builtin_memcpy(&g, grad + i, bytes);
  step(g, v);
  for (int k = 0; k < kSlots; ++k) __builtin_memcpy(p[k] + i, &v[k], bytes);
}

// Asks for the first cache lines of a row; the hardware finds the rest by itself.
template <class T>
MR_VECTOR_FN void prefetch_row(const T* row, int64_t width) {
  constexpr int64_t kLine = 64 / sizeof(T), kMost = 8 * kLine;
  const int64_t end = width < kMost ? width : kMost;
  for (int64_t i = 0; i < end; i += kLine) __builtin_prefetch(row + i, 1);
}

template <class Rule, class T, bool kFlag>
void apply_rows(const ApplyRows& rows, void* const* slots, const void* grad, const void* scalars) {
  constexpr int kSlots = Rule::info.num_slots();
  using Step = typename Rule::template Step<T, kFlag>;
  // Rows lie anywhere in memory: without asking ahead, each would wait for it.
  constexpr int64_t kAhead = 4;
  const Step step(static_cast<const T*>(scalars));
  const T* g = static_cast<const T*>(grad);
  for (int64_t r = 0; r < rows.count; ++r) {
    if (r + kAhead < rows.count) {
      for (int k = 0; k < kSlots; ++k) {
        const T* next = static_cast<const T*>(slots[k]) + rows.targets[r + kAhead] * rows.stride;
        prefetch_row(next, rows.width);
      }
      prefetch_row(g + rows.sources[r + kAhead] * rows.stride, rows.width);
    }
    T* p[kSlots];
    for (int k = 0; k < kSlots; ++k) {
      p[k] = static_cast<T*>(slots[k]) + rows.targets[r] * rows.stride;
    }
    apply_elements<Step, kSlots>(step, p, g + rows.sources[r] * rows.stride, rows.width);
  }
}

template <class Rule, class T>
ApplyLoop loop_of(bool flag) {
  if constexpr (Rule::info.flag.name == nullptr) {
    return &apply_rows<Rule, T, false>;
  } else {
    return flag ? &apply_rows<Rule, T, true> : &apply_rows<Rule, T, false>;
  }
}

template <class... Rules>
ApplyLoop pick_apply_loop(int rule, bool flag, DType dtype, RuleList<Rules...>) {
  using Pick = ApplyLoop (*)(bool);
  constexpr Pick of_float[] = {&loop_of<Rules, float>...};
  constexpr Pick of_double[] = {&loop_of<Rules, double>...};
  return dtype == DType::kDouble ? of_double[rule](flag) : of_float[rule](flag);
}

}  // namespace MR_ISA_NAMESPACE
}  // namespace millrace
