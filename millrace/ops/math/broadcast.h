#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/tensor/partial_shape.h"
#include "millrace/tensor/shape.h"

namespace millrace {

// How to walk up to three operands that are broadcast together by NumPy's rule. Neighbouring
// dimensions that behave alike are merged first, so [32,28,28,1] with [28,28,1] is a walk over two
// dimensions and equal shapes are one; a walk over up to eight merged dimensions needs no memory of
// its own.
//
//   MR_TRY_ASSIGN(BroadcastPlan plan, BroadcastPlan::make({&a.shape(), &b.shape()}));
//   plan.for_each_run(0, plan.shape().num_elements(), [&](const int64_t* from, int64_t out, int64_t
//   n) {
//     // Outputs out .. out+n-1; operand k begins at element from[k] and moves by plan.step(k), 0
//     or 1.
//   });
class BroadcastPlan {
 public:
  static constexpr int kMaxOperands = 3;

  // INVALID_ARGUMENT with both shapes when two of them do not go together.
  static Result<BroadcastPlan> make(std::initializer_list<const Shape*> operands);

  // The shape of the result.
  const Shape& shape() const { return shape_; }
  // The number of consecutive outputs over which every operand's step stays the same (at least 1).
  int64_t run_length() const { return rank_ == 0 ? 1 : dims()[0].size; }
  // How operand k moves within a run: 1, or 0 when it is repeated.
  int64_t step(int k) const { return rank_ == 0 ? 0 : dims()[0].strides[k]; }
  // True when operand k is not repeated anywhere: element i belongs to output i.
  bool dense(int k) const { return dense_[k]; }
  // True when operand k is the same in every run, so that the first run's elements repeat.
  bool repeats_every_run(int k) const;

  // Calls f(from, out, n) for the outputs [begin, end) in order, run by run.
  template <class F>
  void for_each_run(int64_t begin, int64_t end, F&& f) const {
    if (begin >= end) return;
    if (rank_ == 0) {
      const int64_t from[kMaxOperands] = {};
      f(from, int64_t{0}, int64_t{1});
      return;
    }
    int64_t index[Shape::kMaxRank];
    int64_t from[kMaxOperands] = {};
    seek(begin, index, from);
    const Dim& inner = dims()[0];
    for (int64_t out = begin;;) {
      const int64_t left = inner.size - index[0];
      const int64_t n = left < end - out ? left : end - out;
      f(static_cast<const int64_t*>(from), out, n);
      out += n;
      if (out >= end) return;
      for (int k = 0; k < kMaxOperands; ++k) from[k] -= index[0] * inner.strides[k];
      index[0] = 0;
      next_row(index, from);
    }
  }

 private:
  struct Dim {
    int64_t size;
    int64_t strides[kMaxOperands];  // in elements; 0 where the operand is repeated
  };
  static constexpr int kInlineRank = 8;

  const Dim* dims() const { return rank_ <= kInlineRank ? inline_ : more_.data(); }
  void push(const Dim& dim);
  void seek(int64_t position, int64_t* index, int64_t* from) const;
  void next_row(int64_t* index, int64_t* from) const;

  Shape shape_;
  bool dense_[kMaxOperands] = {};
  int rank_ = 0;  // of the merged dimensions, innermost first
  Dim inline_[kInlineRank];
  std::vector<Dim> more_;  // all of them, when they are too many for inline_
};

// INVALID_ARGUMENT unless a tensor of shape `from` can be repeated to fill shape `to`, as far as
// the two are known.
Status check_broadcast_to(const Shape& from, const Shape& to);
Status check_broadcast_to(const PartialShape& from, const PartialShape& to);

// Loops over contiguous blocks, which the functions below feed. Elements have the given sizes in
// bytes; `out` may be the memory of an operand that is not repeated.
using BinaryLoop = void (*)(const void* a, const void* b, void* out, int64_t n);

// Applies `loop` to the outputs [begin, end) of a plan of two operands. Repeated elements are
// expanded into a small buffer in the first-level cache, so one contiguous loop serves every kind
// of broadcast. Element sizes are 1, 2, 4, 8 or 16.
template <class Loop>
void broadcast_range(const BroadcastPlan& plan, const Loop& loop, const void* a, const void* b,
                     size_t in_size, void* out, size_t out_size, int64_t begin, int64_t end);

// Fills `to` with n copies of the element at `from`.
void fill_elements(void* to, const void* from, size_t size, int64_t n);
// The same of `count` elements: `times` copies of each.
void spread_elements(void* to, const void* from, size_t size, int64_t count, int64_t times);
// The elements that operand k has at the outputs [begin, end).
void gather_operand(const BroadcastPlan& plan, int k, const void* data, size_t size, int64_t begin,
                    int64_t end, void* to);

// The bytes of one expansion buffer.
inline constexpr int64_t kExpandBytes = 4096;
// Runs at least this long are handed to the loop as they are; shorter ones are gathered into
// blocks.
inline constexpr int64_t kDirectRun = 32;

// `loop` over n elements, the operands moving by steps of 0 or 1.
template <class Loop>
void stepped_loop(const Loop& loop, const void* a, int64_t a_step, const void* b, int64_t b_step,
                  size_t in_size, void* out, size_t out_size, int64_t n) {
  if (n <= 1 || (a_step == 1 && b_step == 1)) {
    loop(a, b, out, n);
    return;
  }
  alignas(64) char a_buffer[kExpandBytes];
  alignas(64) char b_buffer[kExpandBytes];
  const int64_t chunk = kExpandBytes / static_cast<int64_t>(in_size);
  const int64_t filled = n < chunk ? n : chunk;
  if (a_step == 0) fill_elements(a_buffer, a, in_size, filled);
  if (b_step == 0) fill_elements(b_buffer, b, in_size, filled);
  for (int64_t i = 0; i < n; i += chunk) {
    const char* pa = a_step == 0 ? a_buffer : static_cast<const char*>(a) + i * in_size;
    const char* pb = b_step == 0 ? b_buffer : static_cast<const char*>(b) + i * in_size;
    loop(pa, pb, static_cast<char*>(out) + i * out_size, n - i < chunk ? n - i : chunk);
  }
}

template <class Loop>
void broadcast_range(const BroadcastPlan& plan, const Loop& loop, const void* a, const void* b,
                     size_t in_size, void* out, size_t out_size, int64_t begin, int64_t end) {
  const char* operands[2] = {static_cast<const char*>(a), static_cast<const char*>(b)};
  char* to = static_cast<char*>(out);
  if (plan.run_length() >= kDirectRun) {
    plan.for_each_run(begin, end, [&](const int64_t* from, int64_t at, int64_t n) {
      stepped_loop(loop, operands[0] + from[0] * in_size, plan.step(0),
                   operands[1] + from[1] * in_size, plan.step(1), in_size, to + at * out_size,
                   out_size, n);
    });
    return;
  }
  alignas(64) char buffers[2][kExpandBytes];
  // Whole runs, so that what repeats every run is gathered once.
  const int64_t run = plan.run_length();
  const int64_t block = kExpandBytes / static_cast<int64_t>(in_size) / run * run;
  for (int64_t at = begin; at < end; at += block) {
    const int64_t stop = end - at < block ? end : at + block;
    const char* from[2];
    for (int k = 0; k < 2; ++k) {
      from[k] = plan.dense(k) ? operands[k] + at * in_size : buffers[k];
      if (plan.dense(k) || (at > begin && plan.repeats_every_run(k))) continue;
      gather_operand(plan, k, operands[k], in_size, at, stop, buffers[k]);
    }
    loop(from[0], from[1], to + at * out_size, stop - at);
  }
}

}  // namespace millrace
