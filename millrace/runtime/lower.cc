#include "millrace/runtime/lower.h"

#include <algorithm>
#include <string>
#include <utility>

#include "millrace/autodiff/gradients.h"
#include "millrace/graph/functional_builders.h"

namespace millrace {
namespace {

constexpr int kMaxNodes = 10'000'000;

size_t index(NodeId id) { return static_cast<size_t>(id); }

bool calls_by_name(const SubNode& node) { return node.op_owner && !node.op->unknown; }

bool is_functional(const SubNode& node) {
  return calls_by_name(node) || node.op->traits.functional != FunctionalOp::kNone;
}

// Where the nodes of a function's body go.
struct Place {
  std::string prefix;         // of their names
  std::vector<Output> args;   // what stands for the parameters
  std::vector<bool> guarded;  // by parameter: dead when the body is not to run
  NodeId pivot = -1;          // live exactly when the body is to run; -1: it always is
  // Of a loop: constants enter it once instead of being made in every iteration.
  const std::string* frame = nullptr;
  int64_t parallel_iterations = 0;
};

// A body in its place.
struct Placed {
  std::vector<Output> results;
  std::vector<bool> guarded;  // by result
  std::vector<NodeId> effects;
};

class Lowering {
 public:
  Lowering(Subgraph& graph, const Ref<FunctionLibrary>& functions, LoweredOutputs& outputs,
           Lower which)
      : graph_(graph), functions_(functions), outputs_(outputs), which_(which) {}

  Status run(NodeId first) {
    for (NodeId id = first; id < graph_.size(); ++id) {
      if (to_lower(graph_.node(id))) todo_.push_back({id, -1});
    }
    while (!todo_.empty()) {
      auto [id, pivot] = todo_.back();
      todo_.pop_back();
      node_ = graph_.node(id);
      Status status = lower(id, pivot);
      if (status.ok()) continue;
      status = status.with_prefix(str_cat(node_.op->name, " \"", node_.name, "\""));
      if (status.code() == Code::kResourceExhausted) return status;
      std::string where = describe_origin(node_.origin);
      outputs_.fail(id, where.empty() ? status : status.with_line(where));
    }
    for (NodeId id = first; id < graph_.size(); ++id) {
      for (Output& input : graph_.node(id).inputs) input = resolve(input);
    }
    return ok_status();
  }

 private:
  struct Todo {
    NodeId node;
    NodeId pivot;  // of the branch or iteration it stands in
  };

  bool to_lower(const SubNode& node) const {
    if (!is_functional(node)) return false;
    return which_ == Lower::kAll || std::ranges::any_of(node.inputs, [&](const Output& input) {
             return is_ref(type_of(input));
           });
  }

  // Through calls whose result is another functional node's output.
  Output resolve(Output o) const {
    while (outputs_.contains(o.node)) o = outputs_(o);
    return o;
  }

  // node_ is a copy of the node to replace, which is number `id`. It waits for its pivot: some of
  // its inputs may be there although it is not to run.
  Status lower(NodeId id, NodeId pivot) {
    if (pivot >= 0) node_.control_inputs.push_back(pivot);
    if (calls_by_name(node_)) return lower_call(id, {node_.op->name, *node_.attrs});
    switch (node_.op->traits.functional) {
      case FunctionalOp::kCall: {
        MR_TRY_ASSIGN(FunctionAttr f, node_.attr<FunctionAttr>("f"));
        return lower_call(id, f);
      }
      case FunctionalOp::kIf:
        return lower_if(id);
      case FunctionalOp::kCase:
        return lower_case(id);
      case FunctionalOp::kWhile:
        return lower_while(id, pivot);
      case FunctionalOp::kSymbolicGradient: {
        MR_TRY_ASSIGN(FunctionAttr f, node_.attr<FunctionAttr>("f"));
        MR_TRY_ASSIGN(std::string gradient, gradient_of(f));
        return lower_call(id, {gradient, {}});
      }
      case FunctionalOp::kNone:
        break;
    }
    return internal("this op runs no function");
  }

  // The function that computes the gradients of f: its own where it names one.
  Result<std::string> gradient_of(const FunctionAttr& f) const {
    Ref<Function> function = functions_->find(f.name);
    if (function && !function->gradient.empty()) return function->gradient;
    auto scratch = make_ref<Graph>(graph_.registry(), functions_);
    GraphBuilder builder(*scratch);
    return gradient_function(builder, f);
  }

  Result<NodeId> add(std::string_view suffix, std::string_view op, std::vector<Output> inputs,
                     std::vector<NodeId> controls = {}, AttrMap attrs = {}) {
    MR_TRY_ASSIGN(NodeId id, graph_.add(str_cat(node_.name, suffix), op, std::move(inputs),
                                        std::move(controls), std::move(attrs), node_.device));
    graph_.node(id).origin = node_.origin;
    return id;
  }

  Result<Output> add_identity(std::string_view suffix, Output input,
                              std::vector<NodeId> controls = {}) {
    DType type = base_type(type_of(input));
    MR_TRY_ASSIGN(NodeId id, add(suffix, "Identity", {input}, std::move(controls), {{"T", type}}));
    return Output{id, 0};
  }

  // The type of a tensor that may be an output of a functional node not lowered yet.
  DType type_of(Output o) const { return graph_.output_type(resolve(o)); }

  Result<Ref<FunctionBody>> body_of(const FunctionAttr& f, std::span<const DType> arg_types,
                                    std::span<const DType> result_types) {
    MR_TRY_ASSIGN(Ref<FunctionBody> body,
                  functions_->instantiate(f.name, f.attrs, graph_.registry()));
    MR_TRY(check_types(f.name, "takes", body->arg_types, arg_types));
    MR_TRY(check_types(f.name, "gives", body->result_types, result_types));
    if (graph_.size() + body->graph->num_nodes() > kMaxNodes) {
      return resource_exhausted("inlining functions makes more than ", kMaxNodes, " nodes");
    }
    return body;
  }

  static Status check_types(const std::string& name, std::string_view verb,
                            std::span<const DType> actual, std::span<const DType> expected) {
    bool same = actual.size() == expected.size();
    for (size_t i = 0; same && i < actual.size(); ++i) {
      same = base_type(actual[i]) == base_type(expected[i]);
    }
    if (same) return ok_status();
    return invalid_argument("expected a function that ", verb, " (", str_join(expected, ", "),
                            "), but \"", name, "\" ", verb, " (", str_join(actual, ", "), ")");
  }

  // Copies the body's nodes. Those that would run although the body does not, because nothing that
  // they need is dead then, wait for the pivot.
  Result<Placed> put(const FunctionBody& body, const Place& place) {
    const Graph& g = *body.graph;
    std::vector<Output> arg_source(static_cast<size_t>(g.num_nodes()));
    std::vector<bool> guarded(static_cast<size_t>(g.num_nodes()), false);
    for (size_t i = 0; i < body.args.size(); ++i) {
      arg_source[index(body.args[i])] = place.args[i];
      guarded[index(body.args[i])] = place.guarded[i];
    }
    std::vector<NodeId> map(static_cast<size_t>(g.num_nodes()), -1);
    NodeId next = graph_.size();
    for (NodeId id = 0; id < g.num_nodes(); ++id) {
      const OpTraits& traits = g.node(id).op().traits;
      if (traits.argument || traits.result) continue;
      map[index(id)] = next;
      next += enters_once(g.node(id), place) ? 2 : 1;
      // The copy of a constant stands outside the loop, its Enter follows.
      if (enters_once(g.node(id), place)) ++map[index(id)];
    }
    auto source = [&](Output o) {
      return arg_source[index(o.node)].valid() ? arg_source[index(o.node)]
                                               : Output{map[index(o.node)], o.index};
    };
    for (NodeId id = 0; id < g.num_nodes(); ++id) {
      if (map[index(id)] < 0) continue;
      const Node& inner = g.node(id);
      SubNode copy = graph_.detached_copy(inner);
      copy.name = str_cat(place.prefix, inner.name());
      if (copy.device == 0) copy.device = node_.device;
      if (copy.origin == 0) copy.origin = node_.origin;
      rename_colocation(copy, g, place.prefix);
      MR_TRY(rename_frame(copy, place.prefix));
      if (enters_once(inner, place)) {
        MR_TRY(enter_constant(std::move(copy), place));
        continue;
      }
      bool safe = place.pivot < 0;
      for (Output input : inner.inputs()) {
        copy.inputs.push_back(source(input));
        if (!copy.inputs.back().valid()) return internal("\"", inner.name(), "\" has no input");
        safe |= guarded[index(input.node)];
      }
      for (NodeId c : inner.control_inputs()) {
        if (map[index(c)] >= 0) {
          copy.control_inputs.push_back(map[index(c)]);
          safe |= guarded[index(c)];
        } else if (arg_source[index(c)].valid()) {
          copy.control_inputs.push_back(arg_source[index(c)].node);
        }
      }
      if (!safe) copy.control_inputs.push_back(place.pivot);
      guarded[index(id)] = place.pivot >= 0;
      NodeId added = graph_.add(std::move(copy));
      MR_CHECK(added == map[index(id)]);
      if (to_lower(graph_.node(added))) todo_.push_back({added, place.pivot});
    }
    Placed out;
    for (NodeId r : body.results) {
      Output from = g.node(r).input(0);
      out.results.push_back(source(from));
      out.guarded.push_back(guarded[index(from.node)]);
    }
    for (NodeId c : body.control_results) {
      if (map[index(c)] >= 0) out.effects.push_back(map[index(c)]);
    }
    return out;
  }

  static bool enters_once(const Node& node, const Place& place) {
    return place.frame != nullptr && node.op().traits.constant && node.control_inputs().empty();
  }

  Status enter_constant(SubNode constant, const Place& place) {
    DType type = constant.output_types[0];
    std::string name = constant.name;
    if (outer_pivot_ >= 0) constant.control_inputs.push_back(outer_pivot_);
    NodeId outside = graph_.add(std::move(constant));
    return graph_
        .add(str_cat(name, "/_enter"), "Enter", {{outside, 0}}, {},
             {{"T", type},
              {"frame_name", *place.frame},
              {"is_constant", true},
              {"parallel_iterations", place.parallel_iterations}},
             node_.device)
        .status();
  }

  // Each call of a function that holds loops has loops of its own.
  static Status rename_frame(SubNode& copy, const std::string& prefix) {
    if (copy.op->traits.control_flow != ControlFlow::kEnter) return ok_status();
    MR_TRY_ASSIGN(std::string name, copy.attr<std::string>("frame_name"));
    if (!name.empty()) copy.set_attr("frame_name", str_cat(prefix, name));
    return ok_status();
  }

  static void rename_colocation(SubNode& copy, const Graph& body, const std::string& prefix) {
    if (copy.attrs->find("_class") == nullptr) return;
    auto classes = copy.attr<std::vector<std::string>>("_class");
    if (!classes.ok()) return;
    for (std::string& c : *classes) {
      if (c.starts_with("loc:@") && body.find(c.substr(5)) >= 0) {
        c = str_cat("loc:@", prefix, c.substr(5));
      }
    }
    copy.set_attr("_class", *classes);
  }

  // Puts Identities in the place of the outputs; node `id` becomes what waits for all of it.
  // `effects` come before any output.
  Status finish(NodeId id, const std::vector<Output>& values, std::vector<NodeId> effects) {
    MR_TRY_ASSIGN(int64_t saved, saved_outputs(*node_.attrs));
    std::vector<Output> outputs;
    std::vector<NodeId> waits = effects;
    for (size_t i = 0; i < values.size(); ++i) {
      MR_TRY_ASSIGN(Output out,
                    add_identity(i == 0 ? "" : str_cat("/_output_", i), values[i], effects));
      outputs.push_back(out);
      if (static_cast<int64_t>(i) < static_cast<int64_t>(values.size()) - saved) {
        waits.push_back(out.node);
      }
    }
    SubNode done;
    done.name = outputs.empty() ? node_.name : str_cat(node_.name, "/_done");
    done.device = node_.device;
    done.origin = node_.origin;
    done.control_inputs = std::move(waits);
    MR_TRY_ASSIGN(done.op, graph_.registry().lookup("NoOp"));
    done.attrs = std::make_shared<const AttrMap>();
    graph_.node(id) = std::move(done);
    outputs_.set(id, std::move(outputs));
    return ok_status();
  }

  Status lower_call(NodeId id, const FunctionAttr& f) {
    MR_TRY_ASSIGN(Ref<FunctionBody> body, body_of(f, node_.input_types, node_.output_types));
    Place place;
    place.prefix = str_cat(node_.name, "/");
    place.args = node_.inputs;
    place.guarded.assign(node_.inputs.size(), false);
    // What the call waits for, the body waits for.
    if (node_.control_inputs.size() == 1) {
      place.pivot = node_.control_inputs[0];
    } else if (!node_.control_inputs.empty()) {
      MR_TRY_ASSIGN(place.pivot, add("/_inputs", "NoOp", {}, node_.control_inputs));
    }
    MR_TRY_ASSIGN(Placed placed, put(*body, place));
    if (place.pivot >= 0) placed.effects.push_back(place.pivot);
    return finish(id, placed.results, std::move(placed.effects));
  }

  Status lower_if(NodeId id) {
    std::vector<FunctionAttr> branches(2);
    MR_TRY_ASSIGN(branches[0], node_.attr<FunctionAttr>("else_branch"));
    MR_TRY_ASSIGN(branches[1], node_.attr<FunctionAttr>("then_branch"));
    Output predicate = node_.inputs[0];
    if (base_type(node_.input_types[0]) != DType::kBool) {
      MR_TRY_ASSIGN(NodeId truth, add("/_predicate", "ToBool", {predicate}, {},
                                      {{"T", base_type(node_.input_types[0])}}));
      predicate = {truth, 0};
    }
    return lower_branches(id, predicate, branches, {"/else/", "/then/"});
  }

  Status lower_case(NodeId id) {
    MR_TRY_ASSIGN(auto branches, node_.attr<std::vector<FunctionAttr>>("branches"));
    std::vector<std::string> prefixes;
    for (size_t k = 0; k < branches.size(); ++k) prefixes.push_back(str_cat("/branch_", k, "/"));
    return lower_branches(id, node_.inputs[0], branches, prefixes);
  }

  // Sends `data` to one of `count` branches.
  Result<NodeId> add_switch(std::string_view suffix, Output data, DType type, Output selector,
                            size_t count, std::vector<NodeId> controls) {
    if (node_.op->traits.functional == FunctionalOp::kIf) {
      return add(suffix, "Switch", {data, selector}, std::move(controls), {{"T", type}});
    }
    return add(suffix, "_SwitchN", {data, selector}, std::move(controls),
               {{"T", type}, {"num_outs", static_cast<int64_t>(count)}});
  }

  Status lower_branches(NodeId id, Output selector, const std::vector<FunctionAttr>& branches,
                        const std::vector<std::string>& prefixes) {
    size_t count = branches.size();
    DType selector_type =
        node_.op->traits.functional == FunctionalOp::kIf ? DType::kBool : DType::kInt32;
    MR_TRY_ASSIGN(NodeId pivot_switch, add_switch("/_pivot", selector, selector_type, selector,
                                                  count, node_.control_inputs));
    std::span<const DType> arg_types = std::span(node_.input_types).subspan(1);
    std::vector<NodeId> switches;
    for (size_t i = 0; i < arg_types.size(); ++i) {
      if (is_ref(arg_types[i])) {
        switches.push_back(-1);
        continue;
      }
      MR_TRY_ASSIGN(switches.emplace_back(),
                    add_switch(str_cat("/_switch_", i), node_.inputs[i + 1], arg_types[i], selector,
                               count, node_.control_inputs));
    }
    std::vector<Placed> placed;
    std::vector<NodeId> pivots;
    for (size_t k = 0; k < count; ++k) {
      MR_TRY_ASSIGN(Ref<FunctionBody> body, body_of(branches[k], arg_types, node_.output_types));
      MR_TRY_ASSIGN(Output pivot,
                    add_identity(str_cat("/_pivot_", k), {pivot_switch, static_cast<int32_t>(k)}));
      Place place;
      place.prefix = str_cat(node_.name, prefixes[k]);
      place.pivot = pivot.node;
      for (size_t i = 0; i < arg_types.size(); ++i) {
        place.args.push_back(switches[i] < 0 ? node_.inputs[i + 1]
                                             : Output{switches[i], static_cast<int32_t>(k)});
        place.guarded.push_back(switches[i] >= 0);
      }
      MR_TRY_ASSIGN(placed.emplace_back(), put(*body, place));
      pivots.push_back(pivot.node);
    }
    std::vector<Output> values;
    for (size_t i = 0; i < node_.output_types.size(); ++i) {
      std::vector<Output> inputs;
      for (size_t k = 0; k < count; ++k) {
        Output value = placed[k].results[i];
        if (!placed[k].guarded[i]) {  // a reference, as it came
          MR_TRY_ASSIGN(value, add_identity(str_cat("/_result_", i, "_", k), value, {pivots[k]}));
        }
        inputs.push_back(value);
      }
      MR_TRY_ASSIGN(NodeId merge, add(str_cat("/_merge_", i), "Merge", inputs, {},
                                      {{"T", base_type(node_.output_types[i])},
                                       {"N", static_cast<int64_t>(count)}}));
      values.push_back({merge, 0});
    }
    return finish_branches(id, values, placed, pivots);
  }

  // Something must tell that the branch that ran is through with its effects, whichever it was.
  Status finish_branches(NodeId id, const std::vector<Output>& values,
                         const std::vector<Placed>& placed, const std::vector<NodeId>& pivots) {
    bool effects = values.empty();
    for (const Placed& branch : placed) effects |= !branch.effects.empty();
    if (!effects) return finish(id, values, {});
    std::vector<Output> tokens;
    for (size_t k = 0; k < placed.size(); ++k) {
      MR_TRY_ASSIGN(Output token,
                    add_identity(str_cat("/_ran_", k), {pivots[k], 0}, placed[k].effects));
      tokens.push_back(token);
    }
    DType type = graph_.output_type(tokens[0]);
    MR_TRY_ASSIGN(NodeId ran, add("/_ran", "Merge", tokens, {},
                                  {{"T", type}, {"N", static_cast<int64_t>(tokens.size())}}));
    return finish(id, values, {ran});
  }

  // One variable of a loop.
  struct Variable {
    bool invariant = false;  // the body hands it on as it came
    Output current;          // in the iteration, before the condition
    NodeId merge = -1, switch_ = -1;
  };

  Result<Output> add_enter(std::string_view suffix, Output input, DType type, bool constant,
                           int64_t parallel_iterations) {
    MR_TRY_ASSIGN(NodeId enter,
                  add(suffix, is_ref(type) ? "RefEnter" : "Enter", {input}, node_.control_inputs,
                      {{"T", base_type(type)},
                       {"frame_name", node_.name},
                       {"is_constant", constant},
                       {"parallel_iterations", parallel_iterations}}));
    return Output{enter, 0};
  }

  // A Merge whose second input comes later.
  Result<NodeId> add_merge(std::string_view suffix, Output enter, DType type) {
    return add(suffix, "Merge", {enter, enter}, {}, {{"T", type}, {"N", int64_t{2}}});
  }

  Status lower_while(NodeId id, NodeId pivot) {
    MR_TRY_ASSIGN(FunctionAttr cond_f, node_.attr<FunctionAttr>("cond"));
    MR_TRY_ASSIGN(FunctionAttr body_f, node_.attr<FunctionAttr>("body"));
    MR_TRY_ASSIGN(int64_t parallel, node_.attr<int64_t>("parallel_iterations"));
    DType predicate_type = DType::kBool;
    MR_TRY_ASSIGN(Ref<FunctionBody> body, body_of(body_f, node_.input_types, node_.output_types));
    // A predicate of another type is taken as If takes it.
    MR_TRY_ASSIGN(Ref<FunctionBody> any_cond,
                  functions_->instantiate(cond_f.name, cond_f.attrs, graph_.registry()));
    if (any_cond->result_types.size() == 1) predicate_type = any_cond->result_types[0];
    MR_TRY_ASSIGN(Ref<FunctionBody> cond,
                  body_of(cond_f, node_.input_types, std::span(&predicate_type, 1)));
    outer_pivot_ = pivot;

    std::vector<Variable> variables(node_.inputs.size());
    NodeId first_merge = -1;
    for (size_t i = 0; i < variables.size(); ++i) {
      Variable& v = variables[i];
      v.invariant = body->graph->node(body->results[i]).input(0) == Output{body->args[i], 0};
      if (is_ref(node_.input_types[i]) && !v.invariant) {
        return invalid_argument("loop variable ", i,
                                " is a reference, which the body has to hand on unchanged");
      }
      MR_TRY_ASSIGN(v.current, add_enter(str_cat("/_enter_", i), node_.inputs[i],
                                         node_.input_types[i], v.invariant, parallel));
      if (v.invariant) continue;
      MR_TRY_ASSIGN(v.merge, add_merge(str_cat("/_merge_", i), v.current, node_.input_types[i]));
      v.current = {v.merge, 0};
      if (first_merge < 0) first_merge = v.merge;
    }
    // A token goes round where nothing else does, and where effects have to be waited for.
    NodeId token_merge = -1;
    if (first_merge < 0 || !body->control_results.empty()) {
      MR_TRY_ASSIGN(NodeId token,
                    add("/_token", "Const", {}, node_.control_inputs,
                        {{"dtype", DType::kBool}, {"value", Tensor::scalar<bool>(true)}}));
      MR_TRY_ASSIGN(Output enter,
                    add_enter("/_enter_token", {token, 0}, DType::kBool, false, parallel));
      MR_TRY_ASSIGN(token_merge, add_merge("/_merge_token", enter, DType::kBool));
      if (first_merge < 0) first_merge = token_merge;
    }

    Place place;
    place.prefix = str_cat(node_.name, "/cond/");
    place.frame = &node_.name;
    place.parallel_iterations = parallel;
    place.pivot = first_merge;
    for (const Variable& v : variables) {
      place.args.push_back(v.current);
      place.guarded.push_back(true);
    }
    MR_TRY_ASSIGN(Placed condition, put(*cond, place));
    Output predicate = condition.results[0];
    if (base_type(predicate_type) != DType::kBool) {
      MR_TRY_ASSIGN(NodeId truth, add("/_predicate", "ToBool", {predicate}, {},
                                      {{"T", base_type(predicate_type)}}));
      predicate = {truth, 0};
    }
    MR_TRY_ASSIGN(NodeId loop_cond, add("/_loop_cond", "LoopCond", {predicate}));

    for (size_t i = 0; i < variables.size(); ++i) {
      Variable& v = variables[i];
      if (v.invariant) continue;
      MR_TRY_ASSIGN(v.switch_, add(str_cat("/_switch_", i), "Switch", {v.current, {loop_cond, 0}},
                                   {}, {{"T", node_.input_types[i]}}));
    }
    Output turn = {token_merge >= 0 ? token_merge : loop_cond, 0};
    MR_TRY_ASSIGN(NodeId pivot_switch, add("/_pivot_switch", "Switch", {turn, {loop_cond, 0}}, {},
                                           {{"T", DType::kBool}}));
    // Live while the loop goes on.
    MR_TRY_ASSIGN(Output round, add_identity("/_pivot", {pivot_switch, 1}));

    place.prefix = str_cat(node_.name, "/body/");
    place.pivot = round.node;
    place.args.clear();
    place.guarded.clear();
    for (const Variable& v : variables) {
      place.args.push_back(v.invariant ? v.current : Output{v.switch_, 1});
      place.guarded.push_back(!v.invariant);
    }
    MR_TRY_ASSIGN(Placed placed, put(*body, place));

    std::vector<Output> values;
    for (size_t i = 0; i < variables.size(); ++i) {
      const Variable& v = variables[i];
      if (v.invariant) {
        values.push_back(node_.inputs[i]);
        continue;
      }
      MR_TRY(close_loop(str_cat("_", i), v.merge, placed.results[i], node_.input_types[i],
                        placed.guarded[i], round.node, placed.effects));
      MR_TRY_ASSIGN(NodeId exit, add(str_cat("/_exit_", i), "Exit", {{v.switch_, 0}}, {},
                                     {{"T", node_.input_types[i]}}));
      values.push_back({exit, 0});
    }
    std::vector<NodeId> effects;
    if (token_merge >= 0) {
      MR_TRY(
          close_loop("_token", token_merge, round, DType::kBool, true, round.node, placed.effects));
      // The end of the loop, for what waits for its effects.
      MR_TRY_ASSIGN(NodeId exit,
                    add("/_exit_token", "Exit", {{pivot_switch, 0}}, {}, {{"T", DType::kBool}}));
      effects.push_back(exit);
    }
    return finish(id, values, std::move(effects));
  }

  // Hands `value` on to the next iteration, once the effects of this one are done.
  Status close_loop(const std::string& suffix, NodeId merge, Output value, DType type, bool guarded,
                    NodeId round, std::vector<NodeId> waits) {
    if (!guarded) waits.push_back(round);
    MR_TRY_ASSIGN(NodeId next, add(str_cat("/_next", suffix), "NextIteration", {value},
                                   std::move(waits), {{"T", type}}));
    graph_.node(merge).inputs[1] = {next, 0};
    return ok_status();
  }

  Subgraph& graph_;
  const Ref<FunctionLibrary>& functions_;
  LoweredOutputs& outputs_;
  const Lower which_;
  std::vector<Todo> todo_;
  SubNode node_;
  NodeId outer_pivot_ = -1;
};

}  // namespace

void LoweredOutputs::erase_from(NodeId first) {
  std::erase_if(outputs_, [&](const auto& entry) { return entry.first >= first; });
  std::erase_if(errors_, [&](const auto& entry) { return entry.first >= first; });
}

Status lower_functions(Subgraph& graph, NodeId first, const Ref<FunctionLibrary>& functions,
                       LoweredOutputs& outputs, Lower which) {
  return Lowering(graph, functions, outputs, which).run(first);
}

}  // namespace millrace
