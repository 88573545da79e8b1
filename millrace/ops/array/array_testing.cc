#include "millrace/ops/array/array_testing.h"

#include <gtest/gtest.h>

namespace millrace {

std::vector<DType> moved_types() {
  return {DType::kBool,   DType::kHalf,       DType::kFloat,    DType::kInt64,  DType::kComplex64,
          DType::kString, DType::kComplex128, DType::kResource, DType::kVariant};
}

int64_t flat_index(const Shape& shape, const Index& index) {
  int64_t flat = 0;
  for (int i = 0; i < shape.rank(); ++i) flat = flat * shape.dim(i) + index[static_cast<size_t>(i)];
  return flat;
}

Tensor pick(const Tensor& from, const Shape& shape, FunctionRef<int64_t(const Index&)> source) {
  Tensor out = is_plain(from.dtype()) ? Tensor::zeros(from.dtype(), shape).value()
                                      : Tensor::allocate(from.dtype(), shape).value();
  const Tensor flat = from.reshaped(Shape{from.num_elements()}).value();
  Tensor flat_out = out.reshaped(Shape{out.num_elements()}).value();
  Index index(static_cast<size_t>(shape.rank()));
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    int64_t rest = i;
    for (int k = shape.rank() - 1; k >= 0; --k) {
      index[static_cast<size_t>(k)] = rest % shape.dim(k);
      rest /= shape.dim(k);
    }
    const int64_t at = source(index);
    if (at < 0) continue;
    Tensor to = flat_out.rows(i, i + 1);
    copy_elements(flat.rows(at, at + 1), to);
  }
  return out;
}

Tensor int_vector(const std::vector<int64_t>& values, DType dtype) {
  if (dtype == DType::kInt64) return Tensor::vector<int64_t>(std::span<const int64_t>(values));
  const std::vector<int32_t> narrow(values.begin(), values.end());
  return Tensor::vector<int32_t>(std::span<const int32_t>(narrow));
}

void expect_error(const Status& status, Code code, std::string_view part, SourceLocation where) {
  SCOPED_TRACE(str_cat(where));
  EXPECT_EQ(status.code(), code) << status.to_string();
  EXPECT_NE(std::string(status.message()).find(part), std::string::npos)
      << "no '" << part << "' in: " << status.to_string();
}

void expect_invalid(OpTester& tester, std::string_view part, SourceLocation where) {
  expect_error(tester.run().status(), Code::kInvalidArgument, part, where);
}

}  // namespace millrace
