#include "millrace/tensor/element_patterns.h"

#include <cstdint>
#include <type_traits>

#include "millrace/base/check.h"
#include "millrace/tensor/dispatch.h"
#include "millrace/tensor/float8.h"
#include "millrace/tensor/quantized.h"

namespace millrace {
namespace {

template <class T>
constexpr bool kAnyBytes =
    !std::is_same_v<T, bool> && !std::is_same_v<T, Float4E2M1FN> && !requires { T::kMin; };

template <class T>
T nearest_value(uint8_t bits) {
  if constexpr (std::is_same_v<T, bool>) {
    return bits != 0;
  } else if constexpr (std::is_same_v<T, Float4E2M1FN>) {
    return T::from_bits(bits);
  } else {
    return T(static_cast<int8_t>(bits));
  }
}

}  // namespace

bool any_bytes_are_elements(DType dtype) {
  bool any = false;
  return dispatch<PlainTypes>(dtype, [&]<class T>() { any = kAnyBytes<T>; }).ok() && any;
}

void repair_elements(Tensor& tensor) {
  const Status known = dispatch<PlainTypes>(tensor.dtype(), [&]<class T>() {
    if constexpr (!kAnyBytes<T>) {
      static_assert(sizeof(T) == 1);
      auto* const bytes = static_cast<uint8_t*>(tensor.mutable_raw());
      auto* const elements = reinterpret_cast<T*>(bytes);
      for (size_t i = 0; i < tensor.bytes(); ++i) elements[i] = nearest_value<T>(bytes[i]);
    }
  });
  MR_CHECK_OK(known);
}

}  // namespace millrace
