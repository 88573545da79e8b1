#pragma once

#include "millrace/tensor/tensor.h"

// Elements whose bytes came from outside: a file, a message. Not every pattern of bytes is a value
// of every type, and kernels count on values.

namespace millrace {

// Whether any bytes are elements of the type: not of bool, nor of numbers of fewer than eight bits.
bool any_bytes_are_elements(DType dtype);

// Brings elements of the other types into range: bools become true or false, narrow integers wrap.
// `tensor` is plain, writable and on the host.
void repair_elements(Tensor& tensor);

}  // namespace millrace
