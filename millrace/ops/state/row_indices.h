#pragma once

#include "millrace/tensor/tensor.h"

namespace millrace {

// Row numbers that came from the user: a tensor of int32 or int64 whose elements were all shown to
// be in [0, rows). Borrows the tensor.
class RowIndices {
 public:
  // INVALID_ARGUMENT naming the first element outside.
  static Result<RowIndices> make(const Tensor& indices, int64_t rows);

  int64_t size() const { return size_; }
  int64_t operator[](int64_t i) const { return narrow_ != nullptr ? narrow_[i] : wide_[i]; }

 private:
  RowIndices() = default;

  int64_t size_ = 0;
  const int32_t* narrow_ = nullptr;  // one of the two
  const int64_t* wide_ = nullptr;
};

}  // namespace millrace
