#pragma once

#include "millrace/ops/linalg/gemm.h"

namespace millrace {

// Few rows times a wide matrix, which is read once, where it lies: nothing of it is packed, and
// threads share its columns. What is read of it at a time stays in the caches for all rows. T as
// gemm() has it.
template <class T>
class FewRows {
 public:
  // `turned`: the problem's rows are the columns of what is to be written, and C lies so.
  FewRows(const GemmProblem<T>& problem, const GemmKernels<T>& kernels, bool turned = false);

  // Whether the problem is one of these.
  bool takes() const { return strips_ || dots_; }

  Status run(ParallelFor parallel_for) const;

 private:
  // Lines a multiple of this apart would fight for the same places of the cache.
  bool reads_left_in_place() const;
  // As it is read: a line's elements after each other, or the lines side by side.
  void pack_left(T* out, ParallelFor parallel_for) const;
  Status multiply(const GemmRows<T>& left, ParallelFor parallel_for) const;
  // Columns [from, to). Few rows of the right matrix are read at a time, a strip of columns after
  // the other, so many of them that they lie in all places of the caches, and so few that they
  // remain there until all tiles have read them, though they be a power of two apart. The sums of
  // all these columns stay in the second-level cache until they are complete.
  bool multiply_strips(const GemmRows<T>& left, int64_t from, int64_t to) const;
  // The sums of `wide` columns from `column` on, which lie row by row, as rows of C.
  void write_turned(const T* sums, int64_t column, int64_t wide) const;
  // What is read some strips later than columns from j on.
  const T* ahead_of(int64_t from, int64_t to, int64_t k, int64_t j) const;
  // Adds depth_ products to each sum of a strip, which lie row by row, or stores them there.
  void multiply_strip(const GemmRows<T>& left, int64_t k, int64_t column, int64_t wide,
                      const T* ahead, T* sums) const;
  void multiply_dots(const GemmRows<T>& left, int64_t from, int64_t to) const;
  void multiply_dots(const GemmRows<T>& left, int64_t k, int64_t column, int64_t wide,
                     const T* ahead) const;

  const GemmProblem<T>& problem_;
  const GemmKernels<T>& kernels_;
  const bool turned_;
  const typename GemmSource<T>::Lines left_, right_;
  bool strips_ = false, dots_ = false;
  int tall_ = 1;       // rows of a tile
  int64_t unit_ = 1;   // its columns
  int64_t depth_ = 1;  // products of a sum at a time
};

}  // namespace millrace
