#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "millrace/base/status.h"
#include "millrace/ops/reduce/fold.h"
#include "millrace/ops/reduce/folded_elements.h"
#include "millrace/tensor/dtype.h"

namespace millrace {

// Sum, Mean, Prod, Max, Min, All or Any along rows that follow each other, a few rows or a part of
// a row at a time: for who has them in the cache and wants to go on with them there. To the bit
// what the op gives that folds the last dimensions of a whole tensor. Immutable.
class RowFold {
 public:
  // A row may be folded in pieces of so many elements, the last of which may be shorter.
  static constexpr int64_t kPiece = kFoldBlock;

  RowFold() = default;
  // UNIMPLEMENTED for another op, and for types that it does not fold along rows: complex ones.
  static Result<RowFold> make(std::string_view op, DType type);

  // out[r] = row r of n >= 1 elements, folded. `out` is no part of x.
  void rows(const void* x, int64_t rows, int64_t n, void* out) const {
    functions_->rows(kind_, x, rows, n, out);
  }

  // The same of one long row: each piece gives a partial result of partial_bytes(), from which,
  // in the order of the row, finish() makes out[0]. It uses the partial results up.
  size_t partial_bytes() const { return functions_->partial_bytes; }
  void piece(const void* x, int64_t n, void* partial) const {
    functions_->piece(kind_, x, n, partial);
  }
  void finish(void* partials, int64_t row_length, void* out) const {
    functions_->finish(kind_, partials, row_length, out);
  }

  // out[i], i < n: what folding no elements gives.
  void fill_empty(void* out, int64_t n) const { functions_->fill_empty(kind_, out, n); }

  Reduction kind() const { return kind_; }
  // Nanoseconds per element.
  double cost() const { return functions_->cost; }

 private:
  struct Functions {
    void (*rows)(Reduction, const void*, int64_t, int64_t, void*);
    void (*piece)(Reduction, const void*, int64_t, void*);
    void (*finish)(Reduction, void*, int64_t, void*);
    void (*fill_empty)(Reduction, void*, int64_t);
    size_t partial_bytes;
    double cost;
  };
  template <class T>
  struct Of;

  const Functions* functions_ = nullptr;
  Reduction kind_ = Reduction::kSum;
};

}  // namespace millrace
