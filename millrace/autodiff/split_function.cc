#include "millrace/autodiff/split_function.h"

#include <algorithm>
#include <memory>

#include "millrace/autodiff/aggregate.h"
#include "millrace/autodiff/backward_function.h"

namespace millrace {

Result<SplitFunction> split_function(GraphBuilder& builder, const FunctionAttr& function,
                                     const std::vector<bool>& given,
                                     const std::vector<bool>& wanted) {
  const GradientOptions options;
  const WalkContext context = {builder, builder, options, "", nullptr};
  MR_TRY_ASSIGN(const std::unique_ptr<BackwardFunction> half,
                BackwardFunction::create(context, function, {}));
  const FunctionBody& body = half->body();
  if (given.size() != body.results.size() || wanted.size() != body.args.size()) {
    return invalid_argument("function \"", function.name, "\" has ", body.args.size(),
                            " arguments and ", body.results.size(), " results, got ", wanted.size(),
                            " and ", given.size());
  }
  MR_TRY(half->differentiate(given, wanted));
  SplitFunction split;
  FunctionBuilder& backward = half->backward();
  std::vector<Output> results;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Gradient& g = half->argument_gradients()[i];
    if (!g.valid()) continue;
    split.gradients.push_back({static_cast<int>(i), g.is_slices()});
    std::vector<Expr> parts = {g.values};
    if (g.is_slices()) {
      parts = {g.values, cast(g.indices, DType::kInt64), cast(g.dense_shape, DType::kInt64)};
    }
    for (Expr part : parts) {
      part = backward.import(part);
      if (!part.valid()) return backward.status();
      results.push_back(GraphBuilder::output(part));
      split.backward_results.push_back(base_type(part.dtype()));
    }
  }
  std::vector<Output> parameters, outputs, saved;
  for (Expr g : half->gradient_parameters()) {
    if (g.valid()) parameters.push_back(GraphBuilder::output(g));
  }
  const size_t num_args = body.args.size(), num_results = body.results.size();
  for (size_t i = 0; i < num_results; ++i) outputs.push_back(half->result(i));
  for (const BackwardFunction::Saved& value : half->saved(results)) {
    parameters.push_back(value.backward);
    int number = half->argument_number(value.forward);
    if (number < 0) {
      auto at = std::find(outputs.begin(), outputs.end(), value.forward);
      if (at == outputs.end()) {
        split.saved.push_back(base_type(body.graph->output_type(value.forward)));
        saved.push_back(value.forward);
        at = outputs.insert(outputs.end(), value.forward);
      }
      number = static_cast<int>(num_args) + static_cast<int>(at - outputs.begin());
    }
    split.sources.push_back(number);
  }
  split.forward = function.name;
  if (!saved.empty()) {
    MR_TRY_ASSIGN(split.forward,
                  half->finish_forward(str_cat(function.name, "_forward"), {}, saved));
  }
  MR_TRY_ASSIGN(split.backward,
                backward.finish(str_cat(function.name, "_backward"), parameters, results));
  return split;
}

}  // namespace millrace
