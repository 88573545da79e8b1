#pragma once

#include <cstdint>
#include <string>

#include "millrace/tensor/tensor.h"

namespace millrace {

// The first elements of a host tensor as Print and Assert show them: "1 2 3..." of a vector,
// "[1 2][3...]..." of a matrix. Numbers have the fewest digits that tell them apart; strings are
// escaped. Negative `max_elements`: all of them.
std::string summarize(const Tensor& tensor, int64_t max_elements);

}  // namespace millrace
