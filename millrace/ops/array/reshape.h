#pragma once

#include <cstdint>
#include <span>

#include "millrace/tensor/partial_shape.h"
#include "millrace/tensor/shape.h"

namespace millrace {

// The shape that Reshape gives a tensor of shape `from`: one of `sizes`, which are overwritten, may
// be -1. INVALID_ARGUMENT where the elements are not as many.
Result<Shape> reshaped(const Shape& from, std::span<int64_t> sizes);
// The same as far as it is known.
Result<PartialShape> reshaped(const PartialShape& from, PartialShape target);

// With a dimension of size 1 before dimension `dim`, which may count from the end.
Result<Shape> with_dim_inserted(const Shape& shape, int64_t dim);

}  // namespace millrace
