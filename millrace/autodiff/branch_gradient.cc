// The gradient of a node that runs one of several functions (If, Case) or one (a call) is a node of
// the same kind whose functions are the gradients of its functions.

#include <algorithm>

#include "millrace/autodiff/aggregate.h"
#include "millrace/autodiff/backward_function.h"
#include "millrace/graph/functional_builders.h"

namespace millrace {
namespace {

class BranchGradient {
 public:
  BranchGradient(const WalkContext& context, const Node& node,
                 const std::vector<Gradient>& output_gradients, const std::vector<bool>& wanted)
      : context_(context),
        node_(node),
        output_gradients_(output_gradients),
        wanted_(wanted),
        kind_(node.op().traits.functional),
        first_arg_(kind_ == FunctionalOp::kCall ? 0 : 1) {}

  Result<InputGradients> run() {
    MR_TRY(read_functions());
    MR_TRY(differentiate());
    choose_results();
    if (result_inputs_.empty()) return InputGradients(wanted_.size());
    MR_TRY(write_results());
    MR_TRY(collect_saved());
    MR_TRY(widen());
    return build();
  }

 private:
  // A result of the backward functions: a part of the gradient of input `input`.
  enum class Part { kDense, kValues, kIndices, kDenseShape };

  size_t num_args() const { return wanted_.size() - first_arg_; }

  Status read_functions() {
    if (kind_ == FunctionalOp::kIf) {
      functions_.resize(2);
      MR_TRY_ASSIGN(functions_[0], node_.attr<FunctionAttr>("then_branch"));
      MR_TRY_ASSIGN(functions_[1], node_.attr<FunctionAttr>("else_branch"));
    } else if (kind_ == FunctionalOp::kCase) {
      MR_TRY_ASSIGN(functions_, node_.attr<std::vector<FunctionAttr>>("branches"));
    } else if (kind_ == FunctionalOp::kCall) {
      functions_.resize(1);
      MR_TRY_ASSIGN(functions_[0], node_.attr<FunctionAttr>("f"));
    } else {
      return unimplemented("this op has no gradient");
    }
    return ok_status();
  }

  Status differentiate() {
    std::vector<bool> given,
        wanted(wanted_.begin() + static_cast<ptrdiff_t>(first_arg_), wanted_.end());
    for (const Gradient& g : output_gradients_) given.push_back(g.valid());
    std::vector<TensorFacts> facts;
    for (size_t i = first_arg_; i < wanted_.size(); ++i) {
      facts.push_back(context_.forward.graph().facts(node_.input(static_cast<int>(i))));
    }
    for (const FunctionAttr& f : functions_) {
      MR_TRY_ASSIGN(auto branch, BackwardFunction::create(context_, f, facts));
      MR_TRY(branch->differentiate(given, wanted));
      branches_.push_back(std::move(branch));
    }
    return ok_status();
  }

  // An input has a gradient when it has one in some branch: as rows when it has rows in all.
  void choose_results() {
    for (size_t i = 0; i < num_args(); ++i) {
      bool any = false, slices = true;
      for (auto& branch : branches_) {
        const Gradient& g = branch->argument_gradients()[i];
        any |= g.valid();
        slices &= g.is_slices();
      }
      if (!any) continue;
      result_inputs_.push_back(i);
      sparse_.push_back(slices);
    }
  }

  Status write_results() {
    for (auto& branch : branches_) {
      std::vector<Expr> results;
      for (size_t k = 0; k < result_inputs_.size(); ++k) {
        const Gradient& g = branch->argument_gradients()[result_inputs_[k]];
        std::vector<Expr> parts;
        if (sparse_[k]) {
          parts = {g.values, cast(g.indices, DType::kInt64), cast(g.dense_shape, DType::kInt64)};
        } else {
          parts = {branch->dense_argument_gradient(result_inputs_[k])};
        }
        for (Expr part : parts) {
          part = branch->backward().import(part);
          if (!part.valid()) return branch->backward().status();
          results.push_back(part);
        }
      }
      if (context_.options.gate_operations) MR_TRY(gate(branch->backward(), results));
      std::vector<Output>& outputs = results_.emplace_back();
      for (Expr result : results) outputs.push_back(GraphBuilder::output(result));
    }
    return ok_status();
  }

  // What the backward functions take besides gradients: the node's own inputs, and values that the
  // forward functions have to give as further results.
  Status collect_saved() {
    saved_.resize(branches_.size());
    for (size_t b = 0; b < branches_.size(); ++b) {
      for (const BackwardFunction::Saved& s : branches_[b]->saved(results_[b])) {
        int arg = branches_[b]->argument_number(s.forward);
        int number = arg >= 0 ? arg : static_cast<int>(num_args() + num_new_++);
        saved_[b].push_back({s, number});
        if (arg >= 0 && std::find(used_args_.begin(), used_args_.end(), arg) == used_args_.end()) {
          used_args_.push_back(arg);
        }
      }
    }
    return ok_status();
  }

  // Adds the values to save to the forward node's outputs.
  Status widen() {
    first_new_output_ = node_.num_outputs();
    if (num_new_ == 0) return ok_status();
    AttrMap attrs = node_.attrs();
    std::vector<FunctionAttr> widened;
    std::vector<DType> types(node_.output_types().begin(), node_.output_types().end());
    std::vector<PartialShape> shapes;
    for (int i = 0; i < node_.num_outputs(); ++i) shapes.push_back(node_.output_shape(i));
    for (size_t b = 0; b < branches_.size(); ++b) {
      for (const auto& [s, number] : saved_[b]) {
        if (number < static_cast<int>(num_args())) continue;
        const Graph& graph = *branches_[b]->body().graph;
        types.push_back(base_type(graph.output_type(s.forward)));
        shapes.push_back(graph.facts(s.forward).shape);
      }
    }
    for (size_t b = 0; b < branches_.size(); ++b) {
      MR_TRY_ASSIGN(std::string name, widen_branch(b, types, shapes));
      widened.push_back({name, {}});
    }
    attrs.set("Tout", types);
    if (kind_ != FunctionalOp::kCall) attrs.set("output_shapes", shapes);
    if (kind_ == FunctionalOp::kIf) {
      attrs.set("then_branch", widened[0]);
      attrs.set("else_branch", widened[1]);
    } else if (kind_ == FunctionalOp::kCase) {
      attrs.set("branches", widened);
    } else {
      attrs.set("f", widened[0]);
    }
    MR_TRY(add_saved_outputs(attrs, static_cast<int64_t>(num_new_)));
    return context_.forward.graph().widen(node_.id(), {}, std::move(attrs));
  }

  // The branch with its own values in their places, and something of the right type in the others'.
  Result<std::string> widen_branch(size_t b, const std::vector<DType>& types,
                                   const std::vector<PartialShape>& shapes) {
    BackwardFunction& branch = *branches_[b];
    std::vector<Output> more(num_new_);
    for (const auto& [s, number] : saved_[b]) {
      if (number >= static_cast<int>(num_args())) {
        more[static_cast<size_t>(number) - num_args()] = s.forward;
      }
    }
    for (size_t k = 0; k < num_new_; ++k) {
      if (more[k].valid()) continue;
      size_t output = static_cast<size_t>(first_new_output_) + k;
      MR_TRY_ASSIGN(NodeId fake,
                    branch.forward().add("FakeParam", "", {},
                                         {{"dtype", types[output]}, {"shape", shapes[output]}}));
      more[k] = {fake, 0};
    }
    return branch.finish_forward(functions_[b].name, {}, more);
  }

  Result<InputGradients> build() {
    // The inputs of the backward node: gradients, arguments that are used, saved values.
    std::vector<Expr> inputs;
    if (kind_ != FunctionalOp::kCall) inputs.push_back(context_.view(node_.input(0)));
    for (const Gradient& g : output_gradients_) {
      if (g.valid()) inputs.push_back(to_dense(g));
    }
    for (int arg : used_args_) {
      inputs.push_back(context_.view(node_.input(arg + static_cast<int>(first_arg_))));
    }
    for (size_t k = 0; k < num_new_; ++k) {
      inputs.push_back(context_.view({node_.id(), first_new_output_ + static_cast<int>(k)}));
    }
    std::vector<DType> in_types;
    for (size_t i = first_arg_; i < inputs.size(); ++i) {
      if (!inputs[i].valid()) return context_.backward.status();
      in_types.push_back(inputs[i].dtype());
    }

    std::vector<FunctionAttr> backward;
    for (size_t b = 0; b < branches_.size(); ++b) {
      MR_TRY_ASSIGN(std::string name, finish_backward(b, in_types));
      backward.push_back({name, {}});
    }
    std::vector<DType> out_types;
    std::vector<PartialShape> out_shapes;
    const Graph& first = branches_[0]->backward().graph();
    for (size_t r = 0; r < results_[0].size(); ++r) {
      out_types.push_back(first.output_type(results_[0][r]));
      PartialShape shape = first.facts(results_[0][r]).shape;
      for (size_t b = 1; b < branches_.size(); ++b) {
        const PartialShape& other = branches_[b]->backward().graph().facts(results_[b][r]).shape;
        if (shape != other) shape = PartialShape::unknown();
      }
      out_shapes.push_back(shape);
    }
    AttrMap attrs = {{"Tin", in_types}, {"Tout", out_types}};
    if (kind_ == FunctionalOp::kIf) {
      attrs.set("then_branch", backward[0]);
      attrs.set("else_branch", backward[1]);
      attrs.set("output_shapes", out_shapes);
    } else if (kind_ == FunctionalOp::kCase) {
      attrs.set("branches", backward);
      attrs.set("output_shapes", out_shapes);
    } else {
      attrs.set("f", backward[0]);
    }
    std::vector<Expr> outputs =
        context_.backward.emit(node_.op_name(), std::move(inputs), std::move(attrs));
    MR_TRY(context_.backward.status());
    InputGradients out(wanted_.size());
    size_t next = 0;
    for (size_t k = 0; k < result_inputs_.size(); ++k) {
      Gradient& g = out[result_inputs_[k] + first_arg_];
      g.values = outputs[next++];
      if (!sparse_[k]) continue;
      g.indices = outputs[next++];
      g.dense_shape = outputs[next++];
    }
    return out;
  }

  // All backward functions take the same: each has parameters for what only the others use.
  Result<std::string> finish_backward(size_t b, const std::vector<DType>& types) {
    BackwardFunction& branch = *branches_[b];
    std::vector<Output> parameters;
    for (Expr g : branch.gradient_parameters()) {
      if (g.valid()) parameters.push_back(GraphBuilder::output(g));
    }
    auto parameter = [&](int number) -> Result<Output> {
      for (const auto& [s, n] : saved_[b]) {
        if (n == number) return s.backward;
      }
      Expr unused =
          branch.backward().add_parameter(str_cat("unused_", number), types[parameters.size()]);
      if (!unused.valid()) return branch.backward().status();
      return GraphBuilder::output(unused);
    };
    for (int arg : used_args_) {
      MR_TRY_ASSIGN(Output p, parameter(arg));
      parameters.push_back(p);
    }
    for (size_t k = 0; k < num_new_; ++k) {
      MR_TRY_ASSIGN(Output p, parameter(static_cast<int>(num_args() + k)));
      parameters.push_back(p);
    }
    return branch.backward().finish(str_cat(functions_[b].name, "_grad"), parameters, results_[b]);
  }

  struct SavedValue {
    BackwardFunction::Saved saved;
    int number;  // an argument's, or behind those a new output's
  };

  const WalkContext& context_;
  const Node& node_;
  const std::vector<Gradient>& output_gradients_;
  const std::vector<bool>& wanted_;
  FunctionalOp kind_;
  size_t first_arg_;
  std::vector<FunctionAttr> functions_;
  std::vector<std::unique_ptr<BackwardFunction>> branches_;
  std::vector<size_t> result_inputs_;           // arguments that have gradients
  std::vector<bool> sparse_;                    // by result_inputs_
  std::vector<std::vector<Output>> results_;    // by branch, of the backward functions
  std::vector<std::vector<SavedValue>> saved_;  // by branch
  std::vector<int> used_args_;
  size_t num_new_ = 0;
  int first_new_output_ = 0;
};

}  // namespace

Result<InputGradients> branch_gradients(const WalkContext& context, const Node& node,
                                        const std::vector<Gradient>& output_gradients,
                                        const std::vector<bool>& wanted) {
  return BranchGradient(context, node, output_gradients, wanted).run();
}

Result<InputGradients> call_gradients(const WalkContext& context, const Node& node,
                                      const FunctionAttr& function,
                                      const std::vector<Gradient>& output_gradients) {
  Graph& graph = context.forward.graph();
  Ref<Function> called = graph.functions().find(function.name);
  std::string gradient = called ? called->gradient : "";
  if (gradient.empty()) {
    MR_TRY_ASSIGN(gradient, gradient_function(context.forward, function));
  }
  std::vector<Expr> inputs;
  std::vector<DType> in_types, out_types;
  for (Output input : node.inputs()) inputs.push_back(context.view(input));
  for (int i = 0; i < node.num_outputs(); ++i) {
    const Gradient& g = output_gradients[static_cast<size_t>(i)];
    inputs.push_back(g.valid() ? to_dense(g) : zeros_like(context.view({node.id(), i})));
  }
  for (Expr input : inputs) in_types.push_back(input.dtype());
  for (DType type : node.input_types()) out_types.push_back(base_type(type));
  std::vector<Expr> outputs = context.backward.emit(
      "PartitionedCall", std::move(inputs),
      {{"Tin", in_types}, {"Tout", out_types}, {"f", FunctionAttr{gradient, {}}}});
  MR_TRY(context.backward.status());
  InputGradients out(node.inputs().size());
  for (size_t i = 0; i < out.size(); ++i) out[i].values = outputs[i];
  return out;
}

}  // namespace millrace
