#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "millrace/base/function.h"
#include "millrace/base/source_location.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/tensor/tensor.h"

// What the tests of this folder share: a plain reference for ops that move elements, and words for
// errors.

namespace millrace {

using Index = std::vector<int64_t>;

// All dtypes that tests of moving ops run through: one of each size, and those that are not plain.
std::vector<DType> moved_types();

int64_t flat_index(const Shape& shape, const Index& index);

// The tensor of shape `shape` whose element at each index is element source(index) of `from`, in
// row-major order, or zero where that is -1. One element at a time.
Tensor pick(const Tensor& from, const Shape& shape, FunctionRef<int64_t(const Index&)> source);

// An int32 or int64 vector.
Tensor int_vector(const std::vector<int64_t>& values, DType dtype = DType::kInt32);

// The status must be of this code, and its message hold `part`.
void expect_error(const Status& status, Code code, std::string_view part,
                  SourceLocation where = SourceLocation::current());
// As above, of a run that is expected to fail with INVALID_ARGUMENT.
void expect_invalid(OpTester& tester, std::string_view part,
                    SourceLocation where = SourceLocation::current());

}  // namespace millrace
