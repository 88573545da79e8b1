#include "millrace/ops/state/row_indices.h"

namespace millrace {
namespace {

// "[1,2]": where flat element i of a tensor of this shape is.
std::string position(const Shape& shape, int64_t i) {
  std::string text;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    text = str_cat(i % shape.dim(d), text.empty() ? "" : ",", text);
    i /= shape.dim(d);
  }
  return str_cat("[", text, "]");
}

}  // namespace

Result<RowIndices> RowIndices::make(const Tensor& indices, int64_t rows) {
  RowIndices result;
  result.size_ = indices.num_elements();
  if (indices.dtype() == DType::kInt32) {
    result.narrow_ = indices.data<int32_t>().data();
  } else if (indices.dtype() == DType::kInt64) {
    result.wide_ = indices.data<int64_t>().data();
  } else {
    return invalid_argument("indices must be int32 or int64, got ", indices.dtype());
  }
  for (int64_t i = 0; i < result.size_; ++i) {
    const int64_t row = result[i];
    if (row < 0 || row >= rows) {
      return invalid_argument("indices", position(indices.shape(), i), " = ", row,
                              " is not in [0, ", rows, ")");
    }
  }
  return result;
}

}  // namespace millrace
