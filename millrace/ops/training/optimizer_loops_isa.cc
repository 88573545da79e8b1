#include "millrace/ops/training/optimizer_loops.h"
#include "millrace/ops/training/optimizer_rules.h"

namespace millrace {
namespace {

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

// Asks for the first cache lines of a row, into the second-level cache: more of them can be under
// way than into the first. The hardware finds the rest by itself.
template <class T>
MR_VECTOR_FN void prefetch_row(const T* row, int64_t width) {
  constexpr int64_t kLine = 64 / sizeof(T), kMost = 8 * kLine;
  const int64_t end = width < kMost ? width : kMost;
  for (int64_t i = 0; i < end; i += kLine) __builtin_prefetch(row + i, 0, 2);
}

template <class T, int kSlots>
MR_VECTOR_FN void prefetch(const ApplyRows& rows, int64_t r, void* const* slots, const T* grad) {
  for (int k = 0; k < kSlots; ++k) {
    prefetch_row(static_cast<const T*>(slots[k]) + rows.targets[r] * rows.stride, rows.width);
  }
  prefetch_row(grad + rows.sources[r] * rows.stride, rows.width);
}

template <class Rule, class T, bool kFlag>
void apply_rows(const ApplyRows& rows, void* const* slots, const void* grad, const void* scalars) {
  constexpr int kSlots = Rule::info.num_slots();
  using Step = typename Rule::template Step<T, kFlag>;
  // Rows lie anywhere in memory: without asking ahead, each would wait for it.
  constexpr int64_t kAhead = 12;
  const Step step(static_cast<const T*>(scalars));
  const T* g = static_cast<const T*>(grad);
  for (int64_t r = 1; r < kAhead && r < rows.count; ++r) prefetch<T, kSlots>(rows, r, slots, g);
  for (int64_t r = 0; r < rows.count; ++r) {
    if (r + kAhead < rows.count) prefetch<T, kSlots>(rows, r + kAhead, slots, g);
    T* p[kSlots];
    for (int k = 0; k < kSlots; ++k) {
      p[k] = static_cast<T*>(slots[k]) + rows.targets[r] * rows.stride;
    }
    apply_elements<Step, kSlots>(step, p, g + rows.sources[r] * rows.stride, rows.width);
  }
}

// Sums in one order whatever the width of vectors: element i goes to sum i % kSums.
template <class Rule, class T>
void norm_sums(const void* const* slots, const void* grad, const void* scalars, int64_t n,
               double* squares) {
  constexpr int kSlots = Rule::info.num_slots();
  constexpr int64_t kSums = 16;
  const typename Rule::template Step<T, false> step(static_cast<const T*>(scalars));
  double var_sums[kSums] = {}, direction_sums[kSums] = {};
  for (int64_t i = 0; i < n; i += kSums) {
    const int64_t m = n - i < kSums ? n - i : kSums;
    const size_t bytes = static_cast<size_t>(m) * sizeof(T);
    T var[kSums], direction[kSums], in[kSlots + 1][kSums] = {};
    for (int k = 0; k <= kSlots; ++k) {
      const T* from = static_cast<const T*>(k < kSlots ? slots[k] : grad) + i;
      if (m == kSums) {
        __builtin_memcpy(in[k], from, sizeof in[k]);
      } else {
        __builtin_memcpy(in[k], from, bytes);
      }
    }
    for (int64_t j = 0; j < kSums; j += vec::kLanes<T>) {
      vec::Vec<T> v[kSlots];
      for (int k = 0; k < kSlots; ++k) v[k] = vec::load(in[k] + j);
      vec::store(var + j, v[0]);
      vec::store(direction + j, step.direction(vec::load(in[kSlots] + j), v));
    }
    for (int64_t j = 0; j < m; ++j) {
      var_sums[j] += static_cast<double>(var[j]) * static_cast<double>(var[j]);
      direction_sums[j] += static_cast<double>(direction[j]) * static_cast<double>(direction[j]);
    }
  }
  for (int64_t j = 0; j < kSums; ++j) {
    squares[0] += var_sums[j];
    squares[1] += direction_sums[j];
  }
}

template <class Rule, class T>
NormLoop norm_loop_of() {
  if constexpr (Rule::info.trust_ratio) {
    return &norm_sums<Rule, T>;
  } else {
    return nullptr;
  }
}

template <class... Rules>
NormLoop pick_norm_loop(int rule, DType dtype, RuleList<Rules...>) {
  using Pick = NormLoop (*)();
  constexpr Pick of_float[] = {&norm_loop_of<Rules, float>...};
  constexpr Pick of_double[] = {&norm_loop_of<Rules, double>...};
  return dtype == DType::kDouble ? of_double[rule]() : of_float[rule]();
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

ApplyLoop find_apply(int rule, bool flag, DType dtype) {
  return pick_apply_loop(rule, flag, dtype, OptimizerRules());
}

NormLoop find_norm(int rule, DType dtype) { return pick_norm_loop(rule, dtype, OptimizerRules()); }

constexpr OptimizerLoops kOptimizerLoops = {&find_apply, &find_norm};

}  // namespace

template <>
const OptimizerLoops& isa_table<OptimizerLoops, Isa::MR_ISA>() {
  return kOptimizerLoops;
}

}  // namespace millrace
