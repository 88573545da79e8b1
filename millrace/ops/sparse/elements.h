#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "millrace/tensor/dispatch.h"
#include "millrace/tensor/tensor.h"

// Elements that an op compares and does not compute with, in one of three types instead of in each:
// integers and booleans as int64_t (the largest of uint64 as negative numbers), floating ones as
// double, and strings.

namespace millrace {

template <class T>
using ElementsKeptAs = std::conditional_t<
    std::is_same_v<T, int64_t>, ConcatTypes<IntegerTypes, TypeList<bool>>,
    std::conditional_t<std::is_same_v<T, double>, FloatingTypes, TypeList<std::string>>>;

// Calls f.operator()<T>(), which returns Status, with the type that elements of `dtype` are kept
// as.
template <class F>
Status with_kept_element(DType dtype, F f) {
  if (dtype == DType::kString) return f.template operator()<std::string>();
  if (kFloating.contains(dtype)) return f.template operator()<double>();
  return f.template operator()<int64_t>();
}

template <class T>
Result<std::vector<T>> read_elements(const Tensor& from) {
  std::vector<T> elements;
  MR_TRY(dispatch<ElementsKeptAs<T>>(from.dtype(), [&]<class E>() {
    elements.reserve(from.data<E>().size());
    for (const E& element : from.data<E>()) elements.push_back(static_cast<T>(element));
  }));
  return elements;
}

template <class T>
Status write_elements(const std::vector<T>& elements, Tensor& to) {
  return dispatch<ElementsKeptAs<T>>(to.dtype(), [&]<class E>() {
    std::transform(elements.begin(), elements.end(), to.mutable_data<E>().begin(),
                   [](const T& element) { return static_cast<E>(element); });
  });
}

}  // namespace millrace
