#include "millrace/ops/nn/nn_testing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "millrace/tensor/dispatch.h"

namespace millrace {

Tensor tensor_of(DType dtype, const Shape& shape, const std::vector<double>& values) {
  Tensor tensor = Tensor::allocate(dtype, shape).value();
  const Status status = dispatch<RealTypes>(dtype, [&]<class T>() {
    auto out = tensor.mutable_data<T>();
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<T>(values.at(i));
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
  return tensor;
}

Tensor random_tensor(DType dtype, const Shape& shape, std::mt19937& random) {
  std::vector<double> values(static_cast<size_t>(shape.num_elements()));
  for (double& v : values) v = (static_cast<int>(random() % 17) - 8) / 4.0;
  return tensor_of(dtype, shape, values);
}

std::vector<double> doubles_of(const Tensor& tensor) {
  std::vector<double> values;
  const Status status = dispatch<RealTypes>(tensor.dtype(), [&]<class T>() {
    for (T x : tensor.data<T>()) values.push_back(static_cast<double>(x));
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
  return values;
}

double tolerance(DType dtype, double ulps) {
  switch (dtype) {
    case DType::kDouble:
      return ulps * 0x1p-50;
    case DType::kHalf:
      return ulps * 0x1p-11;
    case DType::kBFloat16:
      return ulps * 0x1p-8;
    default:
      return ulps * 0x1p-22;
  }
}

void expect_close(const Tensor& got, const std::vector<double>& want, double ulps) {
  const std::vector<double> values = doubles_of(got);
  ASSERT_EQ(values.size(), want.size());
  const double relative = tolerance(got.dtype(), ulps);
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i]) || std::isinf(want[i])) {
      EXPECT_TRUE(std::isnan(want[i]) ? std::isnan(values[i]) : values[i] == want[i])
          << i << ": " << values[i] << ", expected " << want[i];
      continue;
    }
    ASSERT_NEAR(values[i], want[i], relative * std::max(1.0, std::fabs(want[i])))
        << dtype_name(got.dtype()) << " element " << i;
  }
}

std::string error_of(OpTester& op) {
  const auto result = op.run();
  return result.ok() ? "ok" : result.status().to_string();
}

}  // namespace millrace
