#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "millrace/graph/attr_value.h"
#include "millrace/tensor/dtype.h"

namespace millrace {

// On a node that stands for several: their names, and the lines of the user's program that made
// them. Its kernel then says itself which of them failed.
inline constexpr std::string_view kStandsForAttr = "_stands_for";
inline constexpr std::string_view kStandsForLinesAttr = "_stands_for_lines";
// On a node that reads another, with which it could not be put into one: why.
inline constexpr std::string_view kNotFusedAttr = "_not_fused";

// A tree of elementwise ops (values may also be read more than once) in the attributes of the one
// node that computes it: see OpTraits::fused_by. Among them may be ops that fold (OpTraits::folds)
// the last dimensions, with their list of dimensions as second operand, "Sum keep_dims:float" where
// they keep them. Of (x + y) * tanh(x + y) with inputs x and y:
//
//   stages    ["AddV2:float", "Tanh:float", "Mul:float"]   the ops and the types of their results
//   arities   [2, 1, 2]                                    how many operands each has
//   operands  [0, 1, 2, 2, 3]                              one after the other: i < N is input i of
//                                                          the node's N, N + s is stage s
//   results   [2]                                          the stages that are the node's outputs
struct ElementwiseTree {
  // More than passes put into one node, so that kernels may count on it.
  static constexpr int kMaxStages = 32;
  static constexpr int kMaxInputs = 32;

  struct Stage {
    std::string op;
    DType type = DType::kInvalid;
    std::vector<int> operands;
    bool keep_dims = false;  // of one that folds
  };
  std::vector<Stage> stages;
  std::vector<int> results;

  void write(AttrMap& attrs) const;
  // INVALID_ARGUMENT unless every stage reads inputs and stages before it, within the limits. What
  // the ops are is for the caller to check.
  static Result<ElementwiseTree> read(const AttrMap& attrs, int num_inputs);
};

}  // namespace millrace
