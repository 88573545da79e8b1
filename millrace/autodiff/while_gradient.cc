// The gradient of a While is a While that goes through the iterations backwards. The forward loop
// counts its iterations and pushes what the gradient needs of each on tensor lists, one per value;
// the backward loop pops. Variables that the body does not change are not saved: the backward loop
// takes them as they are, and sums their gradients. Where such a gradient is a product of matrices
// with few rows, transposed, as that of a recurrent layer's weights is, lists collect the factors,
// and one product after the loop is the sum.

#include <algorithm>

#include "millrace/autodiff/aggregate.h"
#include "millrace/autodiff/backward_function.h"
#include "millrace/autodiff/inline_body.h"
#include "millrace/graph/functional_builders.h"

namespace millrace {
namespace {

// Where saved values wait when they are swapped.
constexpr std::string_view kHost = "/device:CPU:0";

// Adds an op on lists of saved values, on the host when they are to wait there.
std::vector<Expr> emit_list_op(GraphBuilder& builder, bool on_host, std::string_view op,
                               std::vector<Expr> inputs, AttrMap attrs) {
  GraphBuilder::Context before = builder.context();
  if (on_host) {
    builder.context().device = kHost;
    builder.context().colocate_with.clear();
  }
  std::vector<Expr> outputs = builder.emit(op, std::move(inputs), std::move(attrs));
  builder.context() = std::move(before);
  return outputs;
}

// Which output of a widened loop counts its iterations.
constexpr std::string_view kCounter = "_counter_output";

class WhileGradient {
 public:
  WhileGradient(const WalkContext& context, const Node& node,
                const std::vector<Gradient>& output_gradients, const std::vector<bool>& wanted)
      : context_(context),
        node_(node),
        output_gradients_(output_gradients),
        wanted_(wanted),
        size_(wanted.size()) {}

  Result<InputGradients> run() {
    MR_TRY_ASSIGN(body_, node_.attr<FunctionAttr>("body"));
    MR_TRY_ASSIGN(cond_, node_.attr<FunctionAttr>("cond"));
    std::vector<TensorFacts> facts;
    for (int i = 0; i < node_.num_outputs(); ++i) {
      facts.push_back({.shape = node_.output_shape(i), .resource = node_.facts(i).resource});
    }
    MR_TRY_ASSIGN(round_, BackwardFunction::create(context_, body_, facts));
    if (round_->body().results.size() != size_) {
      return invalid_argument("the body gives ", round_->body().results.size(),
                              " variables and takes ", size_);
    }
    find_invariants();
    find_carried();
    MR_TRY(differentiate());
    MR_TRY(classify_saved());
    MR_TRY(widen());
    return build();
  }

 private:
  // How the gradient of a variable goes round.
  enum class Flow {
    kNone,      // it does not
    kReplaced,  // the body's gradient takes its place
    kAdded,     // the body's gradient is added: an invariant variable
    kRows,      // the same, as rows that lists collect
    kFactors,   // the same, as the factors of products, which lists collect
  };

  bool swap() const { return context_.options.swap_memory; }

  void find_invariants() {
    for (size_t i = 0; i < size_; ++i) {
      invariant_.push_back(round_->result(i) == Output{round_->body().args[i], 0});
    }
  }

  // By variable: the results of the body that depend on it, through types that have gradients.
  std::vector<bool> reached_from(size_t variable) const {
    const Graph& graph = *round_->body().graph;
    std::vector<bool> depends(static_cast<size_t>(graph.num_nodes()), false);
    depends[static_cast<size_t>(round_->body().args[variable])] = true;
    for (NodeId id = 0; id < graph.num_nodes(); ++id) {
      const Node& node = graph.node(id);
      if (node.op().traits.cannot_differentiate) continue;
      for (Output input : node.inputs()) {
        if (depends[static_cast<size_t>(input.node)] && has_gradients(graph.output_type(input))) {
          depends[static_cast<size_t>(id)] = true;
        }
      }
    }
    std::vector<bool> out;
    for (size_t i = 0; i < size_; ++i) {
      Output result = round_->result(i);
      out.push_back(depends[static_cast<size_t>(result.node)] &&
                    has_gradients(graph.output_type(result)));
    }
    return out;
  }

  // Gradients go round for variables that an output with a gradient depends on, after any number of
  // iterations, and that depend on a wanted input.
  void find_carried() {
    std::vector<std::vector<bool>> reaches;
    for (size_t i = 0; i < size_; ++i) {
      bool differentiable = has_gradients(node_.output_type(static_cast<int>(i)));
      reaches.push_back(differentiable ? reached_from(i) : std::vector<bool>(size_, false));
    }
    std::vector<bool> given(size_), asked = wanted_;
    for (size_t i = 0; i < size_; ++i) given[i] = output_gradients_[i].valid();
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t from = 0; from < size_; ++from) {
        for (size_t to = 0; to < size_; ++to) {
          if (!reaches[from][to]) continue;
          if (given[to] && !given[from]) given[from] = changed = true;
          if (asked[from] && !asked[to]) asked[to] = changed = true;
        }
      }
    }
    for (size_t i = 0; i < size_; ++i) carried_.push_back(given[i] && asked[i]);
  }

  Status differentiate() {
    std::vector<bool> given;
    for (size_t i = 0; i < size_; ++i) given.push_back(carried_[i] && !invariant_[i]);
    MR_TRY(round_->differentiate(given, carried_));
    flow_.assign(size_, Flow::kNone);
    FunctionBuilder& backward = round_->backward();
    auto result = [&](Expr e) {
      e = backward.import(e);
      if (e.valid()) results_.push_back(GraphBuilder::output(e));
    };
    for (size_t i = 0; i < size_; ++i) {
      if (!carried_[i]) continue;
      const Gradient& g = round_->argument_gradients()[i];
      if (!invariant_[i]) {
        flow_[i] = Flow::kReplaced;
        result(round_->dense_argument_gradient(i));
      } else if (g.is_slices()) {
        flow_[i] = Flow::kRows;
        result(g.values);
        result(g.indices);
      } else if (const std::vector<Expr> factors = stackable_factors(g); !factors.empty()) {
        flow_[i] = Flow::kFactors;
        for (Expr factor : factors) result(factor);
      } else if (g.valid()) {
        flow_[i] = Flow::kAdded;
        result(g.values);
      }
    }
    MR_TRY(round_->forward().status());
    return backward.status();
  }

  // With g = a^T b: a and b, where the sum of g over the iterations is better computed as one
  // product of all the a and all the b, one below the other.
  std::vector<Expr> stackable_factors(const Gradient& g) const {
    const GradientOptions& options = context_.options;
    if (!g.valid() || options.swap_memory || options.recompute) return {};
    FunctionBuilder& backward = round_->backward();
    if (g.values.builder() != &backward) return {};
    const Node& product = backward.graph().node(GraphBuilder::output(g.values).node);
    if (product.op_name() != "MatMul") return {};
    const Result<bool> ta = product.attr<bool>("transpose_a"),
                       tb = product.attr<bool>("transpose_b");
    if (!ta.ok() || !*ta || !tb.ok() || *tb) return {};
    const PartialShape sum = g.values.shape();
    if (!sum.fully_known()) return {};  // what of no iterations is
    std::vector<Expr> factors;
    for (int i = 0; i < 2; ++i) {
      const Expr factor = backward.expr(product.input(i));
      // Lists of what is as large as the sum would need more memory than sums.
      if (factor.shape().rank_known() && factor.shape().dim(0) > std::min(sum.dim(0), sum.dim(1)))
        return {};
      if (is_invariant(product.input(i))) return {};
      factors.push_back(factor);
    }
    return factors;
  }

  // Whether the backward body's value is the same in every iteration, as a variable is that the
  // body does not change.
  bool is_invariant(Output value) const {
    for (const BackwardFunction::Saved& s : round_->saved(std::span(&value, 1))) {
      const int arg = round_->argument_number(s.forward);
      if (s.backward == value && arg >= 0 && invariant_[static_cast<size_t>(arg)]) return true;
    }
    return false;
  }

  // Saved values are lists of the forward loop, or invariant variables.
  Status classify_saved() {
    const Graph& graph = *round_->body().graph;
    for (const BackwardFunction::Saved& s : round_->saved(results_)) {
      int arg = round_->argument_number(s.forward);
      if (arg >= 0 && invariant_[static_cast<size_t>(arg)]) {
        invariants_used_.push_back({s.backward, arg});
        continue;
      }
      List list = {s.forward, s.backward, find_list(s.forward),
                   base_type(graph.output_type(s.forward)), graph.facts(s.forward).shape};
      lists_.push_back(std::move(list));
    }
    return ok_status();
  }

  // The variable that collects `value` already, from an earlier gradient; -1: none.
  int find_list(Output value) const {
    const Graph& graph = *round_->body().graph;
    for (size_t i = 0; i < size_; ++i) {
      const Node& push = graph.node(round_->result(i).node);
      if (push.op_name() == "TensorListPushBack" && push.input(1) == value &&
          push.input(0) == Output{round_->body().args[i], 0} &&
          context_.forward.graph().node(node_.input(static_cast<int>(i)).node).op_name() ==
              "EmptyTensorList") {
        return static_cast<int>(i);
      }
    }
    return -1;
  }

  // A parameter of the forward functions, behind those there are.
  Result<Output> add_argument(GraphBuilder& builder, std::string_view name, DType type,
                              TensorFacts facts, size_t number) {
    MR_TRY_ASSIGN(NodeId id, builder.add("_Arg", name, {},
                                         {{"T", type}, {"index", static_cast<int64_t>(number)}}));
    MR_TRY(builder.graph().set_argument_facts(id, std::move(facts)));
    return Output{id, 0};
  }

  // Has the forward loop count its iterations and collect what is to be saved.
  Status widen() {
    counter_ = -1;
    if (node_.attrs().find(kCounter) != nullptr) {
      MR_TRY_ASSIGN(counter_, node_.attr<int64_t>(kCounter));
    }
    GraphBuilder& outer = context_.forward;
    GraphBuilder& inner = round_->forward();
    std::vector<Output> inputs, arguments, results;
    std::vector<DType> types(node_.output_types().begin(), node_.output_types().end());
    std::vector<PartialShape> shapes;
    for (int i = 0; i < node_.num_outputs(); ++i) shapes.push_back(node_.output_shape(i));
    GraphBuilder::Context before = outer.context();
    if (&outer == &context_.backward) {
      outer.context().colocate_with.clear();
    } else {
      outer.context().origin = node_.origin();
    }
    Status status = [&]() -> Status {
      if (counter_ < 0) {
        counter_ = static_cast<int64_t>(types.size());
        inputs.push_back(GraphBuilder::output(outer.constant(Tensor::scalar<int32_t>(0))));
        MR_TRY(outer.status());
        MR_TRY_ASSIGN(Output count, add_argument(inner, "iterations", DType::kInt32,
                                                 {.shape = PartialShape::scalar()}, types.size()));
        arguments.push_back(count);
        Expr next = inner.expr(count) + 1.0;
        MR_TRY(inner.status());
        results.push_back(GraphBuilder::output(next));
        types.push_back(DType::kInt32);
        shapes.push_back(PartialShape::scalar());
      }
      for (List& list : lists_) {
        if (list.variable >= 0) continue;
        list.variable = static_cast<int>(types.size());
        std::vector<Expr> made = emit_list_op(
            outer, swap(), "EmptyTensorList",
            {element_shape(outer, list.shape), outer.constant(Tensor::scalar<int32_t>(-1))},
            {{"element_dtype", list.type}});
        MR_TRY(outer.status());
        inputs.push_back(GraphBuilder::output(made[0]));
        TensorFacts facts = outer.graph().facts(inputs.back());
        facts.constant = nullptr;
        MR_TRY_ASSIGN(Output parameter, add_argument(inner, "saved", DType::kVariant,
                                                     std::move(facts), types.size()));
        arguments.push_back(parameter);
        std::vector<Expr> pushed =
            emit_list_op(inner, swap(), "TensorListPushBack",
                         {inner.expr(parameter), inner.expr(list.forward)}, {});
        MR_TRY(inner.status());
        results.push_back(GraphBuilder::output(pushed[0]));
        types.push_back(DType::kVariant);
        shapes.push_back(PartialShape::scalar());
      }
      return ok_status();
    }();
    outer.context() = std::move(before);
    MR_TRY(status);
    if (inputs.empty()) return ok_status();
    MR_TRY_ASSIGN(std::string body, round_->finish_forward(body_.name, arguments, results));
    MR_TRY_ASSIGN(std::string cond, widen_condition(types));
    AttrMap attrs = node_.attrs();
    attrs.set("T", types);
    attrs.set("output_shapes", shapes);
    attrs.set("body", FunctionAttr{body, {}});
    attrs.set("cond", FunctionAttr{cond, {}});
    attrs.set(kCounter, counter_);
    MR_TRY(add_saved_outputs(attrs, static_cast<int64_t>(inputs.size())));
    return context_.forward.graph().widen(node_.id(), inputs, std::move(attrs));
  }

  // The condition with parameters for the variables that it does not look at.
  Result<std::string> widen_condition(const std::vector<DType>& types) {
    MR_TRY_ASSIGN(auto test, BackwardFunction::create(context_, cond_, {}));
    std::vector<Output> more;
    for (size_t i = test->body().args.size(); i < types.size(); ++i) {
      MR_TRY_ASSIGN(Output argument, add_argument(test->forward(), "saved", types[i], {}, i));
      more.push_back(argument);
    }
    return test->finish_forward(cond_.name, more, {});
  }

  // A variable of the backward loop that brings the gradient of variable i, or collects its rows.
  struct Carried {
    size_t variable;
    size_t first;  // among the backward loop's variables
  };

  Result<InputGradients> build() {
    GraphBuilder& outer = context_.backward;
    std::vector<Expr> initial = {context_.view({node_.id(), static_cast<int32_t>(counter_)})};
    std::vector<Carried> carried;
    for (size_t i = 0; i < size_; ++i) {
      if (flow_[i] == Flow::kNone) continue;
      carried.push_back({i, initial.size()});
      if (collects(i)) {
        MR_TRY(add_lists(parts_of(i), initial));
      } else {
        const Gradient& g = output_gradients_[i];
        Expr forward = context_.view({node_.id(), static_cast<int32_t>(i)});
        initial.push_back(g.valid() ? to_dense(g) : zero_gradient(forward));
      }
    }
    size_t first_list = initial.size();
    for (const List& list : lists_) initial.push_back(context_.view({node_.id(), list.variable}));
    MR_TRY(outer.status());

    WhileOptions options;
    options.name = "while";
    MR_TRY_ASSIGN(options.parallel_iterations, node_.attr<int64_t>("parallel_iterations"));
    options.trust_shapes = true;
    for (Expr v : initial) options.shape_invariants.push_back(v.shape());
    for (const Carried& c : carried) {
      // In other iterations the variable may have had other sizes than at the end.
      if (!collects(c.variable)) {
        options.shape_invariants[c.first] =
            known_gradient_shape(context_.view({node_.id(), static_cast<int32_t>(c.variable)}));
      }
    }
    std::vector<Expr> outputs = add_while(
        outer, initial,
        [](FunctionBuilder&, const std::vector<Expr>& v) {
          return std::vector<Expr>{greater(v[0], constant_like(v[0], 0))};
        },
        [&](FunctionBuilder& inside, const std::vector<Expr>& v) {
          inside.capture_differentiable_constants();  // for gradients of this one
          Result<std::vector<Expr>> next = one_round(inside, v, carried, first_list);
          if (next.ok()) return *std::move(next);
          inside.fail(next.status());
          return std::vector<Expr>();
        },
        options);
    MR_TRY(outer.status());

    InputGradients out(size_);
    for (size_t i = 0; i < size_; ++i) {
      if (carried_[i] && flow_[i] == Flow::kNone) out[i] = output_gradients_[i];
    }
    for (const Carried& c : carried) {
      Gradient g = {outputs[c.first], {}, {}};
      if (flow_[c.variable] == Flow::kRows) {
        MR_TRY_ASSIGN(g, join_rows(c.variable, outputs[c.first], outputs[c.first + 1]));
      } else if (flow_[c.variable] == Flow::kFactors) {
        MR_TRY_ASSIGN(g, join_factors(c.variable, outputs[c.first], outputs[c.first + 1]));
      }
      out[c.variable] = g;
    }
    return out;
  }

  // Whether two lists collect what makes up the gradient of variable i.
  bool collects(size_t i) const { return flow_[i] == Flow::kRows || flow_[i] == Flow::kFactors; }
  // What they collect, in the backward body.
  std::vector<Expr> parts_of(size_t i) const {
    const Gradient& g = round_->argument_gradients()[i];
    return flow_[i] == Flow::kRows ? std::vector<Expr>{g.values, g.indices} : stackable_factors(g);
  }

  Status add_lists(const std::vector<Expr>& parts, std::vector<Expr>& initial) {
    GraphBuilder& outer = context_.backward;
    for (Expr part : parts) {
      PartialShape shape = part.shape();
      if (shape.rank() > 0) shape.set_dim(0, PartialShape::kUnknownDim);
      std::vector<Expr> list =
          outer.emit("EmptyTensorList",
                     {element_shape(outer, shape), outer.constant(Tensor::scalar<int32_t>(-1))},
                     {{"element_dtype", part.dtype()}});
      MR_TRY(outer.status());
      initial.push_back(list[0]);
    }
    return ok_status();
  }

  // The tensors of a list, of this type and shape but for the number of rows, below each other.
  Expr join(Expr list, DType type, PartialShape shape) const {
    GraphBuilder& outer = context_.backward;
    if (shape.rank() > 0) shape.set_dim(0, PartialShape::kUnknownDim);
    std::vector<Expr> made =
        outer.emit("TensorListConcatV2",
                   {list, element_shape(outer, shape), outer.constant(Tensor::vector<int64_t>({}))},
                   {{"element_dtype", type}});
    return made.empty() ? Expr() : made[0];
  }

  // What the products of the factors of all iterations, and the gradient of the loop's output, add
  // up to.
  Result<Gradient> join_factors(size_t variable, Expr a, Expr b) {
    const Expr each = round_->argument_gradients()[variable].values;
    const PartialShape sum = each.shape();
    const auto join_factor = [&](Expr list, int64_t columns) {
      return join(list, each.dtype(), PartialShape{PartialShape::kUnknownDim, columns});
    };
    const Expr product =
        matmul(join_factor(a, sum.dim(0)), join_factor(b, sum.dim(1)), true, false);
    MR_TRY(context_.backward.status());
    const Gradient& incoming = output_gradients_[variable];
    const Gradient all = {product, {}, {}};
    return incoming.valid() ? sum_gradients({incoming, all}) : all;
  }

  // What the rows of all iterations, and the gradient of the loop's output, add up to.
  Result<Gradient> join_rows(size_t variable, Expr values, Expr indices) {
    GraphBuilder& outer = context_.backward;
    const Gradient& g = round_->argument_gradients()[variable];
    Expr dense = context_.view(node_.input(static_cast<int>(variable)));
    PartialShape table = known_gradient_shape(dense);
    Gradient rows;
    rows.values =
        join(values, g.values.dtype(), g.values.shape().rank_known() ? g.values.shape() : table);
    rows.indices = join(indices, g.indices.dtype(), PartialShape({PartialShape::kUnknownDim}));
    rows.dense_shape = gradient_shape(dense);
    MR_TRY(outer.status());
    const Gradient& incoming = output_gradients_[variable];
    return incoming.valid() ? sum_gradients({incoming, rows}) : rows;
  }

  // Pops what the forward iteration saved, runs the body's gradient on it.
  Result<std::vector<Expr>> one_round(FunctionBuilder& inside, const std::vector<Expr>& v,
                                      const std::vector<Carried>& carried, size_t first_list) {
    std::vector<Output> from;
    std::vector<Expr> args;
    for (const Carried& c : carried) {
      Expr parameter = round_->gradient_parameters()[c.variable];
      if (!parameter.valid()) continue;
      from.push_back(GraphBuilder::output(parameter));
      args.push_back(v[c.first]);
    }
    std::vector<Expr> popped_lists;
    for (size_t k = 0; k < lists_.size(); ++k) {
      const List& list = lists_[k];
      std::vector<Expr> popped = emit_list_op(
          inside, swap(), "TensorListPopBack",
          {v[first_list + k], element_shape(inside, list.shape)}, {{"element_dtype", list.type}});
      MR_TRY(inside.status());
      popped_lists.push_back(popped[0]);
      from.push_back(list.backward);
      args.push_back(popped[1]);
    }
    for (const auto& [parameter, variable] : invariants_used_) {
      from.push_back(parameter);
      args.push_back(inside.import(context_.view(node_.input(variable))));
    }
    MR_TRY(inside.status());
    MR_TRY_ASSIGN(std::vector<Expr> made,
                  inline_graph(inside, round_->backward().graph(), from, args, results_));
    size_t at = 0;
    for (const Carried& c : carried) {
      if (flow_[c.variable] == Flow::kAdded) made[at] = call("AddN", {v[c.first], made[at]});
      at += collects(c.variable) ? 2 : 1;
    }
    if (context_.options.gate_operations) MR_TRY(gate(inside, made));
    std::vector<Expr> next = {v[0] - 1.0};
    at = 0;
    for (const Carried& c : carried) {
      if (!collects(c.variable)) {
        next.push_back(made[at++]);
      } else {
        next.push_back(call("TensorListPushBack", {v[c.first], made[at++]}));
        next.push_back(call("TensorListPushBack", {v[c.first + 1], made[at++]}));
      }
    }
    next.insert(next.end(), popped_lists.begin(), popped_lists.end());
    return next;
  }

  // A value that the forward loop collects.
  struct List {
    Output forward;   // in the body
    Output backward;  // the parameter that brings it
    int variable;     // the list, among the forward loop's variables
    DType type;
    PartialShape shape;
  };
  struct UsedInvariant {
    Output parameter;
    int variable;
  };

  const WalkContext& context_;
  const Node& node_;
  const std::vector<Gradient>& output_gradients_;
  const std::vector<bool>& wanted_;
  size_t size_;  // variables, as the loop was before it is widened
  FunctionAttr body_, cond_;
  std::unique_ptr<BackwardFunction> round_;
  std::vector<bool> invariant_, carried_;
  std::vector<Flow> flow_;
  std::vector<Output> results_;  // of the body's gradient, by carried variable
  std::vector<List> lists_;
  std::vector<UsedInvariant> invariants_used_;
  int64_t counter_ = -1;
};

}  // namespace

Result<InputGradients> while_gradients(const WalkContext& context, const Node& node,
                                       const std::vector<Gradient>& output_gradients,
                                       const std::vector<bool>& wanted) {
  return WhileGradient(context, node, output_gradients, wanted).run();
}

}  // namespace millrace
