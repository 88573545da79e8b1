#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/status.h"

namespace millrace {

// Labels of dimensions: a letter is its character; the dimensions of "..." are kWide, kWide + 1 and
// so on, counted from the last.
using EinsumLabels = std::vector<int>;
inline constexpr int kWideLabel = 256;

// An equation of Einsum, "ij,jk->ik", with a label for each dimension.
struct EinsumEquation {
  std::vector<EinsumLabels> inputs;
  EinsumLabels output;

  // INVALID_ARGUMENT for another text, another number of inputs than ranks (one or two), ranks that
  // the labels do not fit, and labels of the output that are in no input. One that the output has
  // twice stands for a diagonal, with zeros beside it.
  static Result<EinsumEquation> parse(std::string_view equation, std::span<const int> ranks);
};

// The sides of an equation as they are written: {"ij", "jk", "ik"} of "ij,jk->ik". INVALID_ARGUMENT
// for an equation of another number of inputs than `inputs`, and for more than two.
Result<std::vector<std::string>> einsum_sides(std::string_view equation, int inputs);

// The size of each label, from shapes of which -1 is not known (it stays so where nobody knows):
// `dims[i]` are those of input i. INVALID_ARGUMENT when inputs disagree; a size of 1 for a
// dimension of "..." goes with any. Indexed by position in `labels`.
Result<std::vector<int64_t>> einsum_sizes(const EinsumEquation& equation,
                                          const std::vector<std::vector<int64_t>>& dims,
                                          const EinsumLabels& labels);

}  // namespace millrace
