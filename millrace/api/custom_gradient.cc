#include "millrace/api/custom_gradient.h"

#include "millrace/autodiff/gradient_registry.h"

namespace millrace {

// One node hands on the results and the inputs. Its gradient rule leaves the results alone, so
// nothing flows into the function's operations.
std::vector<Expr> custom_gradient(
    const Scope& scope, const std::vector<Expr>& inputs,
    const std::function<std::vector<Expr>(const Scope&, const std::vector<Expr>&)>& function,
    CustomGradient gradient, SourceLocation where) {
  std::vector<Expr> results = function(scope, inputs);
  if (!scope.ok()) return {};
  size_t num_results = results.size();
  auto rule = [gradient = std::move(gradient), num_results](GradientContext& g) -> Status {
    auto* builder = dynamic_cast<GraphBuilder*>(&g.builder());
    if (builder == nullptr) return unimplemented("a custom gradient needs a graph");
    CustomGradientArgs args;
    for (size_t i = 0; i < num_results; ++i) {
      args.results.push_back(g.output(static_cast<int>(i)));
      args.gradients.push_back(g.gradient(static_cast<int>(i)));
    }
    for (int i = static_cast<int>(num_results); i < g.num_inputs(); ++i) {
      args.inputs.push_back(g.input(i));
    }
    std::vector<Expr> made = gradient(Scope(*builder), args);
    MR_TRY(builder->status());
    if (made.size() != args.inputs.size()) {
      return invalid_argument("a custom gradient must give a gradient for each of ",
                              args.inputs.size(), " inputs, got ", made.size());
    }
    for (size_t i = 0; i < made.size(); ++i) {
      if (made[i].valid()) g.set(static_cast<int>(num_results + i), made[i]);
    }
    return ok_status();
  };
  std::vector<Expr> all = results;
  all.insert(all.end(), inputs.begin(), inputs.end());
  std::vector<DType> types;
  for (Expr e : all) types.push_back(e.dtype());
  std::string name = register_unique_gradient("CustomGradient", std::move(rule));
  Operation node = scope.add("IdentityN", std::move(all),
                             {{"T", types}, {kGradientOverride, std::move(name)}}, where);
  std::vector<Expr> outputs = scope.outputs(node);
  if (!outputs.empty()) outputs.resize(num_results);
  return outputs;
}

}  // namespace millrace
