#pragma once

#include <cstdint>
#include <optional>

#include "millrace/graph/shape_context.h"

// Sizes, axes and numbers that users wrote, as shape rules read them. What a kernel refuses of a
// fed value, these refuse of a constant.

namespace millrace {

// Input i as the shape of a tensor, as far as it is known. Unlike ShapeContext::input_as_shape(),
// an element of -1 is no unknown size but a mistake.
Result<PartialShape> sizes_input(const ShapeContext& c, int i);
// The same, of `rank` sizes.
Result<PartialShape> sizes_input(const ShapeContext& c, int i, int rank);

// Input i, a scalar, as an axis in [0, rank) of a tensor of rank `rank`; nothing while the number
// or the rank (-1) is unknown.
Result<std::optional<int>> axis_input(const ShapeContext& c, int i, int rank);

// The real number in input i, a constant of one element; nothing for anything else.
std::optional<double> number_input(const ShapeContext& c, int i);

// Input i, which must have the shape `expected`: what both know. INVALID_ARGUMENT names the input.
Result<PartialShape> with_shape(const ShapeContext& c, int i, const PartialShape& expected);

// a * b, -1 while one of them is; INVALID_ARGUMENT past 63 bits.
Result<int64_t> multiply_sizes(int64_t a, int64_t b);

}  // namespace millrace
