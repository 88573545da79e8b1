#pragma once

#include <span>
#include <string>
#include <vector>

#include "millrace/graph/graph_builder.h"

namespace millrace {

// A function in two halves, so that its gradient runs nothing of it a second time.
struct SplitFunction {
  // Takes what the function takes, and gives its results and behind them `saved` values more, those
  // that the gradient needs. The function itself where that needs none.
  std::string forward;
  std::vector<DType> saved;
  // Takes the gradients of the results that were given, then the values that `sources` number: from
  // 0 on the function's arguments, behind these the outputs of `forward`.
  std::string backward;
  std::vector<int> sources;
  // What it gives: for these arguments a gradient each, one tensor, or rows as values, indices and
  // the shape of the whole. The other arguments have none.
  struct ArgumentGradient {
    int argument;
    bool rows;
  };
  std::vector<ArgumentGradient> gradients;
  std::vector<DType> backward_results;
};

// Splits a function of the builder's library. `given`: by result, whether its gradient comes in;
// `wanted`: by argument, whether one is asked for. The halves are added to the library. Errors are
// those of gradients().
Result<SplitFunction> split_function(GraphBuilder& builder, const FunctionAttr& function,
                                     const std::vector<bool>& given,
                                     const std::vector<bool>& wanted);

}  // namespace millrace
