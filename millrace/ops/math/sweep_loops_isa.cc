#include "millrace/ops/math/binary_ops.h"
#include "millrace/ops/math/gradient_ops.h"
#include "millrace/ops/math/sweep_loops.h"
#include "millrace/ops/math/unary_ops.h"
#include "millrace/ops/reduce/fold_lanes.h"
#include "millrace/ops/stream_vectors.h"
#include "millrace/ops/vector.h"

namespace millrace {
namespace {

using V = vec::Vec<float>;
constexpr int64_t kWidth = vec::kLanes<float>;
// Registers that go through all steps together.
constexpr int kTile = 8;

struct Plus {
  template <class T>
  MR_VECTOR_FN static T apply(T a, T b) {
    return a + b;
  }
};

// X(number, op) for each of two operands; Y for each of one.
#define MR_SWEEP_BINARY(X) \
  X(0, Add)                \
  X(1, AddV2)              \
  X(2, Sub)                \
  X(3, Mul)                \
  X(4, RealDiv)            \
  X(5, Div)                \
  X(6, SquaredDifference)  \
  X(7, Maximum)            \
  X(8, Minimum)            \
  X(9, TanhGrad)           \
  X(10, SigmoidGrad)       \
  X(11, ReluGrad)
#define MR_SWEEP_UNARY(X) \
  X(12, Neg)              \
  X(13, Square)           \
  X(14, Relu)             \
  X(15, Sqrt)             \
  X(16, Abs)

// Single operands are told apart by what is added to an op's number.
constexpr int kForms = 4;

template <class Op, int form, int tile>
MR_VECTOR_FN void binary(V (&v)[tile], const float* operand) {
  constexpr bool kSwapped = (form & SweepStep::kSwapped) != 0;
  const auto eval = [](V a, V b) __attribute__((always_inline)) {
    return kSwapped ? Op::eval(b, a) : Op::eval(a, b);
  };
  if constexpr ((form & SweepStep::kSingle) != 0) {
    const V all = vec::broadcast(*operand);
#pragma GCC unroll 8
    for (int r = 0; r < tile; ++r) v[r] = eval(v[r], all);
  } else {
#pragma GCC unroll 8
    for (int r = 0; r < tile; ++r) v[r] = eval(v[r], vec::load(operand + r * kWidth));
  }
}

template <class Op, int tile>
MR_VECTOR_FN void unary(V (&v)[tile]) {
#pragma GCC unroll 8
  for (int r = 0; r < tile; ++r) v[r] = Op::eval(v[r]);
}

// The lines of a tile.
template <int tile, int write>
MR_VECTOR_FN void fetch(const float* p) {
  constexpr int kLine = 16;  // floats
#pragma GCC unroll 8
  for (int64_t at = 0; at < tile * kWidth; at += kLine) __builtin_prefetch(p + at, write);
}

// All steps for elements i, i + 1, ... of n.
template <int tile>
MR_VECTOR_FN void apply(const SweepStep* steps, int count, int64_t i, int64_t n, V (&v)[tile]) {
  for (int s = 0; s < count; ++s) {
    const SweepStep& step = steps[s];
    const float* const single = step.operand;
    const float* const at = single == nullptr ? nullptr : single + i;
    switch (step.op * kForms + (step.form & (SweepStep::kSwapped | SweepStep::kSingle))) {
#define MR_CASES(number, Op)  \
  case number* kForms:        \
    binary<Op, 0>(v, at);     \
    break;                    \
  case number* kForms + 1:    \
    binary<Op, 1>(v, at);     \
    break;                    \
  case number* kForms + 2:    \
    binary<Op, 2>(v, single); \
    break;                    \
  case number* kForms + 3:    \
    binary<Op, 3>(v, single); \
    break;
      MR_SWEEP_BINARY(MR_CASES)
#undef MR_CASES
#define MR_CASE(number, Op) \
  case number* kForms:      \
    unary<Op>(v);           \
    break;
      MR_SWEEP_UNARY(MR_CASE)
#undef MR_CASE
      default:
        __builtin_unreachable();
    }
    if (tile > 1 && (step.form & SweepStep::kAhead) != 0) fetch<tile, 0>(at + n);
  }
}

// The last elements, fewer than a vector: from a copy that is filled up.
void run_last(const float* x, const SweepStep* steps, int count, int64_t at, int64_t n, float* out,
              float* lanes) {
  float part[kWidth] = {};
  float copies[SweepLoops::kMaxSteps][kWidth] = {};
  SweepStep own[SweepLoops::kMaxSteps];
  for (int64_t k = at; k < n; ++k) part[k - at] = x[k];
  for (int s = 0; s < count; ++s) {
    own[s] = steps[s];
    if (steps[s].operand == nullptr || (steps[s].form & SweepStep::kSingle) != 0) continue;
    for (int64_t k = at; k < n; ++k) copies[s][k - at] = steps[s].operand[k];
    own[s].operand = copies[s];
  }
  V v[1] = {vec::load(part)};
  apply<1>(own, count, 0, 0, v);
  vec::store(part, v[0]);
  for (int64_t k = at; k < n; ++k) {
    if (out != nullptr) out[k] = part[k - at];
    lanes[k % kFoldLanes<float>] += part[k - at];
  }
}

void run(const float* x, const SweepStep* steps, int count, int64_t n, float* out, float* sum,
         unsigned hints) {
  constexpr int64_t kRegisters = kFoldRegisters<float>;
  V sums[kRegisters] = {};
  constexpr int64_t kElements = kTile * kWidth;
  const bool around = (hints & SweepLoops::kAroundCache) != 0 && out != nullptr &&
                      reinterpret_cast<uintptr_t>(out) % vec::kVectorBytes == 0;
  int64_t i = 0;
  for (; i + kElements <= n; i += kElements) {
    if ((hints & SweepLoops::kAheadOfX) != 0) fetch<kTile, 0>(x + n + i);
    if ((hints & SweepLoops::kAheadOfOut) != 0) fetch<kTile, 1>(out + n + i);
    V v[kTile];
#pragma GCC unroll 8
    for (int r = 0; r < kTile; ++r) v[r] = vec::load(x + i + r * kWidth);
    apply<kTile>(steps, count, i, n, v);
    if (around) {
#pragma GCC unroll 8
      for (int r = 0; r < kTile; ++r) stream_vector(out + i + r * kWidth, v[r]);
    } else if (out != nullptr) {
#pragma GCC unroll 8
      for (int r = 0; r < kTile; ++r) vec::store(out + i + r * kWidth, v[r]);
    }
    if (sum != nullptr) {
      if constexpr (kTile % kRegisters == 0) {
#pragma GCC unroll 8
        for (int r = 0; r < kTile; ++r) sums[r % kRegisters] += v[r];
      } else {
        const int64_t first = i / kWidth % kRegisters;
#pragma GCC unroll 8
        for (int r = 0; r < kTile; ++r) sums[first + r] += v[r];
      }
    }
  }
  alignas(vec::kVectorBytes) float lanes[kFoldLanes<float>];
  if (i < n) {
    for (int64_t r = 0; r < kRegisters; ++r) vec::store(lanes + r * kWidth, sums[r]);
    for (; i + kWidth <= n; i += kWidth) {
      V v[1] = {vec::load(x + i)};
      apply<1>(steps, count, i, n, v);
      if (out != nullptr) vec::store(out + i, v[0]);
      float* const to = lanes + i % kFoldLanes<float>;
      vec::store(to, vec::load(to) + v[0]);
    }
    if (i < n) run_last(x, steps, count, i, n, out, lanes);
    for (int64_t r = 0; r < kRegisters; ++r) sums[r] = vec::load(lanes + r * kWidth);
  }
  if (sum != nullptr) *sum = fold_lanes<float, Plus>(sums);
}

int find(const char* op) {
  int number = -1;
#define MR_FIND(n, Op) \
  if (__builtin_strcmp(op, Op::info.name) == 0) number = n;
  MR_SWEEP_BINARY(MR_FIND)
  MR_SWEEP_UNARY(MR_FIND)
#undef MR_FIND
  return number;
}

#undef MR_SWEEP_BINARY
#undef MR_SWEEP_UNARY

constexpr SweepLoops kSweepLoops = {&find, &run};

}  // namespace

template <>
const SweepLoops& isa_table<SweepLoops, Isa::MR_ISA>() {
  return kSweepLoops;
}

}  // namespace millrace
