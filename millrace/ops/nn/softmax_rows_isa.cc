#include "millrace/ops/nn/softmax_rows.h"
#include "millrace/ops/vector.h"

namespace millrace {
namespace {

// As many running sums as the widest vector has lanes.
template <class T>
constexpr int kSums = 64 / static_cast<int>(sizeof(T));
template <class T>
constexpr int kVectors = kSums<T> / vec::kLanes<T>;

// Calls body(block, first) for blocks of kSums elements; the last is filled up with `filler`.
template <class T, class Body>
MR_VECTOR_FN void for_each_block(const T* x, int64_t n, T filler, Body body) {
  int64_t i = 0;
  for (; i + kSums<T> <= n; i += kSums<T>) body(x + i, i);
  if (i == n) return;
  T rest[kSums<T>];
  for (int l = 0; l < kSums<T>; ++l) rest[l] = i + l < n ? x[i + l] : filler;
  body(rest, i);
}

// Lanes of kVectors vectors folded, halves first: the same order for every width of vectors.
template <class T, class F>
MR_VECTOR_FN T fold_sums(const vec::Vec<T>* sums, F f) {
  T lanes[kSums<T>];
  __builtin_memcpy(lanes, sums, sizeof lanes);
  for (int n = kSums<T> / 2; n > 0; n /= 2) {
    for (int l = 0; l < n; ++l) lanes[l] = f(lanes[l], lanes[l + n]);
  }
  return lanes[0];
}

template <class T>
T row_max(const T* x, int64_t n) {
  const T lowest = static_cast<T>(-__builtin_inf());
  vec::Vec<T> largest[kVectors<T>];
  for (auto& v : largest) v = vec::broadcast<T>(lowest);
  for_each_block<T>(
      x, n, lowest, [&](const T* block, int64_t) __attribute__((always_inline)) {
        for (int v = 0; v < kVectors<T>; ++v) {
          largest[v] = vec::max(largest[v], vec::load(block + v * vec::kLanes<T>));
        }
      });
  return fold_sums<T>(
      largest, [](T a, T b) __attribute__((always_inline)) { return vec::max(a, b); });
}

template <class T>
T row_exp_sum(const T* x, T shift, int64_t n, T* out) {
  const T lowest = static_cast<T>(-__builtin_inf());
  vec::Vec<T> sums[kVectors<T>] = {};
  for_each_block<T>(
      x, n, lowest, [&](const T* block, int64_t first) __attribute__((always_inline)) {
        vec::Vec<T> terms[kVectors<T>];
        for (int v = 0; v < kVectors<T>; ++v) {
          terms[v] = vec::exp(vec::load(block + v * vec::kLanes<T>) - shift);
          sums[v] += terms[v];
        }
        if (out == nullptr) return;
        const int64_t count = n - first < kSums<T> ? n - first : kSums<T>;
        __builtin_memcpy(out + first, terms, static_cast<size_t>(count) * sizeof(T));
      });
  return fold_sums<T>(sums, [](T a, T b) __attribute__((always_inline)) { return a + b; });
}

template <class T>
constexpr SoftmaxRows<T> kSoftmaxRows = {&row_max<T>, &row_exp_sum<T>};

}  // namespace

template <>
const SoftmaxRows<float>& isa_table<SoftmaxRows<float>, Isa::MR_ISA>() {
  return kSoftmaxRows<float>;
}
template <>
const SoftmaxRows<double>& isa_table<SoftmaxRows<double>, Isa::MR_ISA>() {
  return kSoftmaxRows<double>;
}

}  // namespace millrace
