#pragma once

#include <cstdint>
#include <string>

#include "millrace/tensor/dtype.h"
#include "millrace/tensor/resource_handle.h"
#include "millrace/tensor/variant.h"

namespace millrace {

struct Bytes16 {
  uint64_t parts[2];
};

// Calls f.operator()<T>() with a type that elements of `dtype` may be copied as: an unsigned
// integer (or Bytes16) of the element's size, or the element type itself where it is not plain. Ops
// that only move elements are compiled once per size instead of once per type.
template <class F>
void with_element(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kString:
      return f.template operator()<std::string>();
    case DType::kResource:
      return f.template operator()<ResourceHandle>();
    case DType::kVariant:
      return f.template operator()<Variant>();
    default:
      break;
  }
  switch (dtype_size(dtype)) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    case 8:
      return f.template operator()<uint64_t>();
    default:
      return f.template operator()<Bytes16>();
  }
}

// Nanoseconds to copy one element, for parallel_for.
inline double copy_cost(DType dtype) {
  return is_plain(dtype) ? 0.12 * static_cast<double>(dtype_size(dtype)) : 25.0;
}

}  // namespace millrace
