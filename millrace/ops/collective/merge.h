#pragma once

#include <cstdint>

#include "millrace/kernel/collectives.h"
#include "millrace/ops/math/elementwise.h"
#include "millrace/tensor/dtype.h"

// The arithmetic of collective reductions, over host memory.

namespace millrace {

// The types that can be reduced, as those of CollectiveReduce.
inline constexpr TypeSet kReducedTypes = TypeSet{DType::kFloat,    DType::kDouble, DType::kHalf,
                                                 DType::kBFloat16, DType::kInt32,  DType::kInt64};

// "Add", "Mul", "Min", "Max".
std::string_view merge_name(Collectives::Merge merge);

// z[i] = merge(x[i], y[i]); z may be x or y. Integers wrap; half and bfloat16 are computed in float
// and rounded. `dtype` is one of kReducedTypes.
BinaryFunction merge_function(Collectives::Merge merge, DType dtype);

// Divides n elements by `divisor` > 0, integers towards zero.
void divide_elements(DType dtype, void* data, int64_t n, int64_t divisor);

}  // namespace millrace
