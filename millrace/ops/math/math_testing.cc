#include "millrace/ops/math/math_testing.h"

#include "millrace/kernel/registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

using TestTypes = ConcatTypes<NumberTypes, QuantizedTypes, TypeList<bool>>;

template <class T>
T from_complex(Complex128 v) {
  if constexpr (is_complex_v<T>) {
    return T(v);
  } else if constexpr (requires(T t) { t.value; }) {
    return T{static_cast<decltype(T::value)>(v.real())};
  } else {
    return static_cast<T>(v.real());
  }
}

template <class T>
Complex128 to_complex(T v) {
  if constexpr (requires { v.value; }) {
    return {static_cast<double>(v.value), 0};
  } else if constexpr (is_complex_v<T>) {
    return {v.real(), v.imag()};
  } else {
    return {static_cast<double>(v), 0};
  }
}

}  // namespace

Tensor make_tensor(DType dtype, const Shape& shape, const std::vector<Complex128>& values) {
  MR_CHECK(static_cast<int64_t>(values.size()) == shape.num_elements());
  Tensor tensor = Tensor::allocate(dtype, shape).value();
  MR_CHECK_OK(dispatch<TestTypes>(dtype, [&]<class T>() {
    std::span<T> data = tensor.mutable_data<T>();
    for (size_t i = 0; i < values.size(); ++i) data[i] = from_complex<T>(values[i]);
  }));
  return tensor;
}

std::vector<Complex128> values_of(const Tensor& tensor) {
  std::vector<Complex128> values;
  MR_CHECK_OK(dispatch<TestTypes>(tensor.dtype(), [&]<class T>() {
    for (const T& v : tensor.data<T>()) values.push_back(to_complex(v));
  }));
  return values;
}

double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kHalf:
      return 0x1p-10;
    case DType::kBFloat16:
      return 0x1p-7;
    case DType::kFloat:
    case DType::kComplex64:
      return 1e-6;
    default:
      return 1e-14;
  }
}

std::vector<DType> kernel_types(const char* op, const char* attr) {
  std::vector<DType> types;
  for (int i = 1; i < kNumDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    if (!type_set_of<TestTypes>.contains(dtype)) continue;
    for (const KernelDef* kernel : KernelRegistry::global().list(op)) {
      for (const KernelDef::Constraint& c : kernel->constraints) {
        if (c.attr == attr && c.types.contains(dtype)) {
          types.push_back(dtype);
          break;
        }
      }
    }
  }
  return types;
}

}  // namespace millrace
