#pragma once

#include <random>
#include <string>
#include <vector>

#include "millrace/kernel/kernel_testing.h"

// What the tests of this folder share: tensors of any floating type read and written as doubles.

namespace millrace {

// Numbers from -2 to 2 in steps of 1/4: exact in every floating type, and so are their short sums.
Tensor random_tensor(DType dtype, const Shape& shape, std::mt19937& random);
Tensor tensor_of(DType dtype, const Shape& shape, const std::vector<double>& values);
std::vector<double> doubles_of(const Tensor& tensor);

// Relative to the larger of 1 and the value; what one rounding of the type allows, times `ulps`.
double tolerance(DType dtype, double ulps = 4);
// Fails the test unless both have one shape and elements within tolerance; NaN equals NaN.
void expect_close(const Tensor& got, const std::vector<double>& want, double ulps = 4);

// "INVALID_ARGUMENT: ..." or "ok".
std::string error_of(OpTester& op);

inline constexpr DType kFloatingTypes[] = {DType::kFloat, DType::kDouble, DType::kHalf,
                                           DType::kBFloat16};

}  // namespace millrace

// The text contains `part`.
#define EXPECT_HAS(text, part)                                             \
  do {                                                                     \
    const std::string mr_text = (text);                                    \
    EXPECT_NE(mr_text.find(part), std::string::npos) << "in: " << mr_text; \
  } while (false)
