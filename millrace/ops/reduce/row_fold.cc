#include "millrace/ops/reduce/row_fold.h"

#include <algorithm>
#include <cstring>

#include "millrace/base/check.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

struct Name {
  std::string_view op;
  Reduction kind;
};
constexpr Name kNames[] = {{"Sum", Reduction::kSum},
                           {"Mean", Reduction::kMean},
                           {"Prod", Reduction::kProd},
                           {"Max", Reduction::kMax},
                           {"Min", Reduction::kMin}};
// Of truth values: "all" is the minimum, "any" the maximum.
constexpr Name kLogicalNames[] = {{"All", Reduction::kMin}, {"Any", Reduction::kMax}};

// Partial results of a row, folded as reduce() folds those of long rows.
template <class A>
A fold_partials(const FoldLoops<A>& loops, A* partials, int64_t count) {
  while (count > 1) {
    int64_t made = 0;
    for (int64_t at = 0; at < count; at += kFoldBlock) {
      loops.rows(partials + at, 1, std::min(kFoldBlock, count - at), partials + made++);
    }
    count = made;
  }
  return partials[0];
}

}  // namespace

template <class T>
struct RowFold::Of {
  using A = Folded<T>;
  static constexpr bool kConverted = !std::is_same_v<A, T>;
  // Rows of more elements than that are folded by those who split them.
  static constexpr int64_t kMaxPieces = 64;

  static const A* load(Reduction kind, const T* x, int64_t n, A* buffer) {
    if constexpr (kConverted) {
      const bool ordered = kind == Reduction::kMax || kind == Reduction::kMin;
      ordered ? to_folded<T, A, true>(x, n, buffer) : to_folded<T, A, false>(x, n, buffer);
      return buffer;
    } else {
      return x;
    }
  }

  static void rows(Reduction kind, const void* from, int64_t rows, int64_t n, void* out) {
    const FoldLoops<A>& loops = fold_loops<A>(fold_op(kind));
    const T* x = static_cast<const T*>(from);
    T* y = static_cast<T*>(out);
    if (n == 1) {
      std::memcpy(out, from, static_cast<size_t>(rows) * sizeof(T));
      return;
    }
    if (n > kFoldBlock) return long_rows(kind, x, rows, n, y);
    if constexpr (!kConverted) {
      loops.rows(x, rows, n, y);
      if (kind == Reduction::kMean) from_folded<T, A>(kind, y, rows, n, y);
    } else {
      A buffer[kFoldBlock], folded[kFoldBlock / 2];
      const int64_t step = kFoldBlock / n;
      for (int64_t r = 0; r < rows; r += step) {
        const int64_t count = std::min(step, rows - r);
        loops.rows(load(kind, x + r * n, count * n, buffer), count, n, folded);
        from_folded<T, A>(kind, folded, count, n, y + r);
      }
    }
  }

  static void long_rows(Reduction kind, const T* x, int64_t rows, int64_t n, T* y) {
    const int64_t pieces = (n + kFoldBlock - 1) / kFoldBlock;
    MR_CHECK(pieces <= kMaxPieces);
    A partials[kMaxPieces];
    for (int64_t r = 0; r < rows; ++r, x += n) {
      for (int64_t p = 0; p < pieces; ++p) {
        const int64_t at = p * kFoldBlock;
        piece(kind, x + at, std::min(kFoldBlock, n - at), partials + p);
      }
      finish(kind, partials, n, y + r);
    }
  }

  static void piece(Reduction kind, const void* x, int64_t n, void* partial) {
    A buffer[kConverted ? kFoldBlock : 1];
    fold_loops<A>(fold_op(kind))
        .rows(load(kind, static_cast<const T*>(x), n, buffer), 1, n, static_cast<A*>(partial));
  }

  static void finish(Reduction kind, void* partials, int64_t n, void* out) {
    const A folded = fold_partials(fold_loops<A>(fold_op(kind)), static_cast<A*>(partials),
                                   (n + kFoldBlock - 1) / kFoldBlock);
    from_folded<T, A>(kind, &folded, 1, n, static_cast<T*>(out));
  }

  static void fill_empty(Reduction kind, void* out, int64_t n) {
    std::fill_n(static_cast<T*>(out), n, empty_result<T>(kind));
  }

  static constexpr Functions kFunctions = {rows,       piece,     finish,
                                           fill_empty, sizeof(A), kConverted ? 0.5 : 0.1};
};

Result<RowFold> RowFold::make(std::string_view op, DType type) {
  RowFold fold;
  const auto find = [&](std::span<const Name> names) {
    for (const Name& name : names) {
      if (name.op == op) fold.kind_ = name.kind;
      if (name.op == op) return true;
    }
    return false;
  };
  const bool known = type == DType::kBool ? find(kLogicalNames) : find(kNames);
  using Types = ConcatTypes<RealTypes, TypeList<bool>>;
  if (known) {
    const Status found =
        dispatch<Types>(type, [&]<class T>() { fold.functions_ = &Of<T>::kFunctions; });
    if (found.ok()) return fold;
  }
  return unimplemented(op, " of ", type, " does not fold rows");
}

}  // namespace millrace
