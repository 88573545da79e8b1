#pragma once

#include <cstdint>

#include "millrace/base/source_location.h"
#include "millrace/tensor/tensor.h"

// Help for tests that work with tensors. A failed expectation is reported at the caller's line.

namespace millrace {

// Same dtype, shape and bits.
void expect_tensor_equal(const Tensor& actual, const Tensor& expected,
                         SourceLocation where = SourceLocation::current());

// Same dtype and shape, and |actual - expected| <= atol + rtol * |expected| for every element; NaN
// equals NaN and infinities equal themselves. Types that are not floating or complex must be equal.
void expect_tensor_close(const Tensor& actual, const Tensor& expected, double rtol = 1e-5,
                         double atol = 1e-6, SourceLocation where = SourceLocation::current());

// A tensor of any dtype whose elements depend on `seed` alone: floating numbers in [-1, 1),
// integers within [-100, 100] (or what the type can hold of it), short strings of arbitrary bytes,
// named resources, and variants of a type that can be written and read.
Tensor random_tensor(DType dtype, const Shape& shape, uint64_t seed);

}  // namespace millrace
