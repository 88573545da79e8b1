#include "millrace/ops/reduce/fold.h"
#include "millrace/ops/reduce/fold_lanes.h"
#include "millrace/ops/vector.h"

namespace millrace {
namespace {

struct FoldSum {
  template <class A>
  static constexpr A kIdentity = 0;
  template <class V>
  MR_VECTOR_FN static V apply(V a, V b) {
    return vec::add(a, b);
  }
};
struct FoldProd {
  template <class A>
  static constexpr A kIdentity = 1;
  template <class V>
  MR_VECTOR_FN static V apply(V a, V b) {
    return vec::mul(a, b);
  }
};
struct FoldMax {
  // `apply` where there is no NaN, in fewer steps.
  template <class V>
  MR_VECTOR_FN static V apply_to_numbers(V a, V b) {
    return vec::greater(a, b);
  }
  template <class A>
  static constexpr A kIdentity = static_cast<A>(-__builtin_inf());
  template <class V>
  MR_VECTOR_FN static V apply(V a, V b) {
    return vec::max(a, b);
  }
};
struct FoldMin {
  template <class V>
  MR_VECTOR_FN static V apply_to_numbers(V a, V b) {
    return vec::lesser(a, b);
  }
  template <class A>
  static constexpr A kIdentity = static_cast<A>(__builtin_inf());
  template <class V>
  MR_VECTOR_FN static V apply(V a, V b) {
    return vec::min(a, b);
  }
};
template <>
constexpr int64_t FoldMax::kIdentity<int64_t> = INT64_MIN;
template <>
constexpr int64_t FoldMin::kIdentity<int64_t> = INT64_MAX;

template <class A, class Op>
constexpr bool kWatchesForNan =
    std::is_floating_point_v<A> && requires(A a) { Op::apply_to_numbers(a, a); };

// Folds whole blocks of lanes into `acc` and returns where they end, or -1 where a NaN may be among
// them: their sum is one then, or there are infinities of both signs.
template <class A, class Op>
MR_VECTOR_FN int64_t fold_numbers(const A* x, int64_t n, vec::Vec<A>* acc) {
  constexpr int64_t kWidth = vec::kLanes<A>, kRegisters = kFoldRegisters<A>;
  vec::Vec<A> sums[kRegisters] = {};
  int64_t i = 0;
  for (; i + kFoldLanes<A> <= n; i += kFoldLanes<A>) {
    for (int64_t r = 0; r < kRegisters; ++r) {
      const vec::Vec<A> v = vec::load(x + i + r * kWidth);
      acc[r] = Op::apply_to_numbers(acc[r], v);
      sums[r] += v;
    }
  }
  for (int64_t r = 1; r < kRegisters; ++r) sums[0] += sums[r];
  return vec::any(sums[0] != sums[0]) ? -1 : i;
}

template <class A, class Op>
MR_VECTOR_FN A fold_row(const A* x, int64_t n) {
  using V = vec::Vec<A>;
  constexpr int64_t kWidth = vec::kLanes<A>;
  constexpr int64_t kRegisters = kFoldRegisters<A>;
  if (n <= kFoldSerial) {
    A acc = x[0];
    for (int64_t i = 1; i < n; ++i) acc = Op::apply(acc, x[i]);
    return acc;
  }
  V acc[kRegisters];
  const auto begin = [&] {
    for (int64_t r = 0; r < kRegisters; ++r) acc[r] = vec::broadcast<A>(Op::template kIdentity<A>);
  };
  begin();
  int64_t i = 0;
  if constexpr (kWatchesForNan<A, Op>) {
    i = fold_numbers<A, Op>(x, n, acc);
    if (i < 0) {
      begin();
      i = 0;
    }
  }
  for (; i + kFoldLanes<A> <= n; i += kFoldLanes<A>) {
    for (int64_t r = 0; r < kRegisters; ++r) {
      acc[r] = Op::apply(acc[r], vec::load(x + i + r * kWidth));
    }
  }
  if (i < n) {
    alignas(vec::kVectorBytes) A lanes[kFoldLanes<A>];
    for (int64_t r = 0; r < kRegisters; ++r) vec::store(lanes + r * kWidth, acc[r]);
    for (int64_t k = 0; i + k < n; ++k) lanes[k] = Op::apply(lanes[k], x[i + k]);
    for (int64_t r = 0; r < kRegisters; ++r) acc[r] = vec::load(lanes + r * kWidth);
  }
  return fold_lanes<A, Op>(acc);
}

template <class A, class Op>
void fold_rows(const A* x, int64_t rows, int64_t n, A* out) {
  for (int64_t r = 0; r < rows; ++r) out[r] = fold_row<A, Op>(x + r * n, n);
}

// `registers` columns of vectors, kept in registers from the first row to the last; each in the
// order of fold_columns().
template <int registers, class A, class Op>
MR_VECTOR_FN void fold_few_columns(A* acc, const A* x, int64_t rows, int64_t stride) {
  constexpr int64_t kWidth = vec::kLanes<A>;
  vec::Vec<A> sums[registers];
#pragma GCC unroll 8
  for (int r = 0; r < registers; ++r) sums[r] = vec::load(acc + r * kWidth);
  for (; rows >= 4; rows -= 4, x += 4 * stride) {
    const A *x1 = x + stride, *x2 = x1 + stride, *x3 = x2 + stride;
#pragma GCC unroll 8
    for (int r = 0; r < registers; ++r) {
      const int64_t k = r * kWidth;
      const auto a = Op::apply(vec::load(x + k), vec::load(x1 + k));
      const auto b = Op::apply(vec::load(x2 + k), vec::load(x3 + k));
      sums[r] = Op::apply(sums[r], Op::apply(a, b));
    }
  }
  for (; rows > 0; --rows, x += stride) {
#pragma GCC unroll 8
    for (int r = 0; r < registers; ++r) {
      sums[r] = Op::apply(sums[r], vec::load(x + r * kWidth));
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < registers; ++r) vec::store(acc + r * kWidth, sums[r]);
}

// Four rows at a time, the two pairs first: less memory traffic and less rounding than one by one.
template <class A, class Op>
void fold_columns(A* acc, const A* x, int64_t rows, int64_t stride, int64_t cols) {
  constexpr int64_t kWidth = vec::kLanes<A>;
  // Of few columns the sums stay in registers; more would be read in too small pieces.
  constexpr int kRegisters = 4;
  if (cols <= 4 * kRegisters * kWidth) {
    for (; cols >= kRegisters * kWidth; cols -= kRegisters * kWidth) {
      fold_few_columns<kRegisters, A, Op>(acc, x, rows, stride);
      acc += kRegisters * kWidth;
      x += kRegisters * kWidth;
    }
    if (cols == 0) return;
  }
  for (; rows >= 4; rows -= 4, x += 4 * stride) {
    const A *x1 = x + stride, *x2 = x1 + stride, *x3 = x2 + stride;
    int64_t k = 0;
    for (; k + kWidth <= cols; k += kWidth) {
      const auto a = Op::apply(vec::load(x + k), vec::load(x1 + k));
      const auto b = Op::apply(vec::load(x2 + k), vec::load(x3 + k));
      vec::store(acc + k, Op::apply(vec::load(acc + k), Op::apply(a, b)));
    }
    for (; k < cols; ++k) {
      acc[k] = Op::apply(acc[k], Op::apply(Op::apply(x[k], x1[k]), Op::apply(x2[k], x3[k])));
    }
  }
  for (; rows > 0; --rows, x += stride) {
    int64_t k = 0;
    for (; k + kWidth <= cols; k += kWidth) {
      vec::store(acc + k, Op::apply(vec::load(acc + k), vec::load(x + k)));
    }
    for (; k < cols; ++k) acc[k] = Op::apply(acc[k], x[k]);
  }
}

template <class A, class Op>
constexpr FoldLoops<A> kFoldLoops = {fold_rows<A, Op>, fold_columns<A, Op>};
template <class A>
constexpr FoldTable<A> kFoldTable = {{kFoldLoops<A, FoldSum>, kFoldLoops<A, FoldProd>,
                                      kFoldLoops<A, FoldMax>, kFoldLoops<A, FoldMin>}};

}  // namespace

template <>
const FoldTable<float>& isa_table<FoldTable<float>, Isa::MR_ISA>() {
  return kFoldTable<float>;
}
template <>
const FoldTable<double>& isa_table<FoldTable<double>, Isa::MR_ISA>() {
  return kFoldTable<double>;
}
template <>
const FoldTable<int64_t>& isa_table<FoldTable<int64_t>, Isa::MR_ISA>() {
  return kFoldTable<int64_t>;
}

}  // namespace millrace
