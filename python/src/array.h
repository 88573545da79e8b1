#pragma once

#include "millrace/tensor/tensor.h"
#include "python/src/binding.h"

namespace millrace::python {

// NumPy arrays in and out.

// The dtype object (millrace.core.dtypes.DType) of a type; a reference type has its own.
nb::handle dtype_object(DType dtype);
// The type that a Python object stands for: a DType, an enum number, a NumPy dtype or scalar class,
// a name. Raises TypeError for anything else.
DType dtype_from_object(nb::handle object);

// Who owns the memory of a tensor made from an array.
enum class Sharing {
  kCopy,    // the tensor: the array may change afterwards
  kBorrow,  // the array, which the tensor keeps alive; small ones are copied all the same
};
// An array (any dtype that has a type here, any strides, objects for strings) as a tensor.
// `expected`: the type to read strings and types without a NumPy dtype as; kInvalid: by the array.
Tensor tensor_from_array(nb::handle array, DType expected, Sharing sharing);

// An array of the tensor's elements, or a NumPy scalar for a tensor of rank 0 (bytes for a string).
// Takes the memory over where nobody else holds it.
nb::object array_from_tensor(Tensor tensor);
// The same of what a run gives, where quantised numbers are the plain integers that they hold.
nb::object array_from_fetch(Tensor tensor);

// A tensor for a Python number, bool, str or bytes without going through NumPy; false when `value`
// is none of these (or does not fit the type). `dtype` kInvalid: float32, int32, bool, string.
bool tensor_from_scalar(nb::handle value, DType dtype, Tensor& out);
// The same for a list or tuple of Python's ints, or of its floats: a vector. False for an empty one
// and for any other.
bool tensor_from_numbers(nb::handle value, DType dtype, Tensor& out);

}  // namespace millrace::python
