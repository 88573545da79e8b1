#pragma once

#include <cstdint>

#include "millrace/tensor/partial_shape.h"

namespace millrace {

// A batch's shape from that of an element, and the other way round; unknown where the rank is.

// `rest` behind a first dimension of size n.
inline PartialShape with_first(int64_t n, const PartialShape& rest) {
  if (!rest.rank_known() || rest.rank() >= Shape::kMaxRank) return PartialShape::unknown();
  PartialShape shape = {n};
  for (int64_t dim : rest.dims()) shape.add_dim(dim);
  return shape;
}

// `shape` without its first dimension; unknown for a scalar.
inline PartialShape without_first(const PartialShape& shape) {
  if (shape.rank() < 1) return PartialShape::unknown();
  PartialShape rest = PartialShape::scalar();
  for (int i = 1; i < shape.rank(); ++i) rest.add_dim(shape.dim(i));
  return rest;
}

}  // namespace millrace
