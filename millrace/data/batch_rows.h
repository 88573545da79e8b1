#pragma once

#include <cstdint>
#include <vector>

#include "millrace/data/dataset.h"

namespace millrace::data {

// A batch of tensors of one shape that grows row by row: each is copied to its place at once.
// Memory is asked for as rows come, so that a batch may be declared far larger than it gets.
class BatchRows {
 public:
  // Begins a batch of at most `limit` rows.
  void begin(int64_t limit);
  // INVALID_ARGUMENT unless all elements have the types and shapes of the first.
  Status add(const Element& element);
  int64_t rows() const { return rows_; }
  // The batch, one tensor for each component.
  void finish(Element& out);

 private:
  Status start(const Element& element);
  Status grow(int64_t rows);

  int64_t limit_ = 0;
  int64_t rows_ = 0;
  int64_t capacity_ = 0;
  int64_t usual_ = 0;  // what the last batch came to
  std::vector<Shape> shapes_;
  std::vector<size_t> row_bytes_;  // 0 for what is not plain
  std::vector<Tensor> tensors_;
};

// Copies the elements of `from` into `to`, beginning with element `at`: same types, any elements.
void copy_into(const Tensor& from, Tensor& to, int64_t at);

}  // namespace millrace::data
