#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "millrace/data/dataset.h"

namespace millrace::data {

// A batch of tensors of one shape that grows row by row: each is copied to its place at once.
// Memory is asked for as rows come, so that a batch may be declared far larger than it gets.
class BatchRows {
 public:
  // Begins a batch of at most `limit` rows.
  void begin(int64_t limit);

  // Adds rows; INVALID_ARGUMENT unless all have the types and shapes of the first.
  // Strings that nobody else sees are taken out of the element.
  Status add(Element& element);
  // Rows [begin, end) of tensors that nobody will change. A batch of nothing else shares their
  // memory.
  Status add_range(const Element& tensors, int64_t begin, int64_t end);
  // An element that is one string.
  Status add_string(std::string_view value);

  int64_t rows() const { return rows_; }
  // Whether the last row was refused: it was asked for, though it is none.
  bool refused() const { return refused_; }
  // The batch, one tensor for each component.
  void finish(Element& out);

 private:
  // Of one component.
  struct Column {
    DType dtype;
    Shape shape;       // of a row
    size_t row_bytes;  // 0 for what is not plain
    Tensor batch;
  };

  // Adds a column for the first row.
  void start(DType dtype, const Shape& shape);
  Status check_columns(size_t count) const;
  Status check(size_t column, DType dtype, const Shape& shape) const;
  // Memory for `more` rows, of the batch's own.
  Status make_room(int64_t more);

  bool refused_ = false;
  int64_t limit_ = 0;
  int64_t rows_ = 0;
  int64_t capacity_ = 0;  // rows that there is memory of its own for, or all of another's
  int64_t usual_ = 0;     // what the last batch came to
  std::vector<Column> columns_;
};

// Copies the elements of `from` into `to`, beginning with element `at`: same types, any elements.
void copy_into(const Tensor& from, Tensor& to, int64_t at);

}  // namespace millrace::data
