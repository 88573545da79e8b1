#pragma once

#include <vector>

#include "millrace/tensor/complex.h"
#include "millrace/tensor/tensor.h"

// Tensors of any numeric type from and to plain numbers, for the tests of this folder.

namespace millrace {

// A tensor of these values, converted as a C++ cast would (real part only for real types).
Tensor make_tensor(DType dtype, const Shape& shape, const std::vector<Complex128>& values);
// The elements of a tensor of numbers or bools.
std::vector<Complex128> values_of(const Tensor& tensor);
// How far a result of this type may be from the exact one, relative to it.
double tolerance_of(DType dtype);
// The types for which `op` has a CPU kernel when attribute `attr` is that type.
std::vector<DType> kernel_types(const char* op, const char* attr = "T");

}  // namespace millrace
