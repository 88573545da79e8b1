#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "millrace/graph/function.h"
#include "millrace/graph/internal_op.h"

namespace millrace {
namespace {

class Extraction {
 public:
  Extraction(const Graph& graph, std::span<const Output> args, std::span<const Output> results,
             std::span<const NodeId> effects)
      : graph_(graph), args_(args), results_(results), effects_(effects) {}

  Result<Ref<Function>> run(std::string_view name) {
    if (name.empty()) return invalid_argument("expected a name, found none");
    MR_TRY(check_outputs(args_, "argument"));
    MR_TRY(check_outputs(results_, "result"));
    for (Output arg : args_) {
      if (!arg_names_.emplace(key(arg), "").second) {
        return invalid_argument("argument \"", graph_.output_name(arg),
                                "\": expected it once, found it twice");
      }
    }
    MR_TRY(find_body());
    function_->signature.name = name;
    for (Output arg : args_) {
      ArgDef def = argument(arg);
      arg_names_[key(arg)] = def.name;
      function_->signature.inputs.push_back(std::move(def));
      add_arg_attrs(arg);
    }
    for (NodeId id : body_) MR_TRY(add_node(graph_.node(id)));
    for (Output result : results_) {
      ArgDef def = argument(result);
      MR_TRY_ASSIGN(std::string source, reference(result));
      function_->returns.emplace_back(def.name, std::move(source));
      function_->signature.outputs.push_back(std::move(def));
    }
    for (NodeId effect : effects_) {
      const std::string& node = graph_.node(effect).name();
      function_->control_returns.emplace_back(node, node);
    }
    return function_;
  }

 private:
  static std::pair<NodeId, int32_t> key(Output output) { return {output.node, output.index}; }

  Status check_outputs(std::span<const Output> outputs, std::string_view what) const {
    for (Output output : outputs) {
      if (output.node < 0 || output.node >= graph_.num_nodes() || output.index < 0 ||
          output.index >= graph_.node(output.node).num_outputs()) {
        return invalid_argument(what, ": expected an output of the graph, found output ",
                                output.index, " of node number ", output.node);
      }
    }
    return ok_status();
  }

  // Everything that the results need, up to the arguments.
  Status find_body() {
    std::vector<NodeId> left;
    auto need = [&](Output output) {
      if (!arg_names_.contains(key(output))) left.push_back(output.node);
    };
    for (Output result : results_) need(result);
    left.insert(left.end(), effects_.begin(), effects_.end());
    while (!left.empty()) {
      NodeId id = left.back();
      left.pop_back();
      if (!body_.insert(id).second) continue;
      const Node& node = graph_.node(id);
      if (node.op().traits.placeholder) {
        return invalid_argument(
            node.op_name(), " \"", node.name(),
            "\": expected every placeholder that the results need among the arguments, "
            "found one that is not");
      }
      Status status = refuse_internal_op(graph_.registry(), node.op_name());
      if (!status.ok()) {
        return status.with_prefix(str_cat(node.op_name(), " \"", node.name(), "\""));
      }
      for (Output input : node.inputs()) need(input);
      for (NodeId source : node.control_inputs()) {
        if (!is_argument_node(source)) left.push_back(source);
      }
    }
    for (NodeId id : body_) taken_.insert(graph_.node(id).name());
    return ok_status();
  }

  // A node that an argument stands for: waiting for it is waiting for the argument.
  bool is_argument_node(NodeId id) const {
    auto it = arg_names_.lower_bound({id, 0});
    return it != arg_names_.end() && it->first.first == id;
  }

  // What is known of a parameter, in the attributes that TensorFlow uses for it.
  void add_arg_attrs(Output arg) {
    const TensorFacts& facts = graph_.facts(arg);
    AttrMap attrs;
    if (facts.shape.rank_known()) {
      attrs.set("_output_shapes", std::vector<PartialShape>{facts.shape});
    }
    if (!facts.resource.empty()) {
      std::vector<DType> types;
      std::vector<PartialShape> shapes;
      for (const ResourceHandle::DTypeAndShape& held : facts.resource) {
        types.push_back(held.dtype);
        shapes.push_back(held.shape);
      }
      attrs.set("_handle_dtypes", std::move(types));
      attrs.set("_handle_shapes", std::move(shapes));
    }
    int number = static_cast<int>(function_->signature.inputs.size()) - 1;
    if (!attrs.empty()) function_->arg_attrs.emplace_back(number, std::move(attrs));
  }

  // The output as a parameter or result, under a name made from its node's.
  ArgDef argument(Output output) {
    ArgDef def;
    for (char c : graph_.node(output.node).name()) {
      bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
      bool upper = c >= 'A' && c <= 'Z';
      def.name += plain ? c : upper ? static_cast<char>(c - 'A' + 'a') : '_';
    }
    if (def.name[0] < 'a' || def.name[0] > 'z') def.name.insert(0, "t");
    std::string base = def.name;
    for (int i = 1; !taken_.insert(def.name).second; ++i) def.name = str_cat(base, "_", i);
    DType type = graph_.output_type(output);
    def.dtype = base_type(type);
    def.is_ref = is_ref(type);
    return def;
  }

  // An output as a body names it.
  Result<std::string> reference(Output output) const {
    if (auto it = arg_names_.find(key(output)); it != arg_names_.end()) return it->second;
    const Node& node = graph_.node(output.node);
    int32_t first = 0;
    for (const ArgDef& def : node.op().outputs) {
      MR_TRY_ASSIGN(std::vector<DType> types, expand_types({def}, node.attrs()));
      int32_t count = static_cast<int32_t>(types.size());
      if (output.index < first + count) {
        return str_cat(node.name(), ":", def.name, ":", output.index - first);
      }
      first += count;
    }
    return invalid_argument(node.op_name(), " \"", node.name(),
                            "\": expected a registered op, found one whose outputs have no names");
  }

  Status add_node(const Node& node) {
    Function::BodyNode body;
    body.name = node.name();
    body.op = node.op_name();
    body.device = node.device();
    body.attrs = node.attrs();
    body.origin = node.origin();
    for (Output input : node.inputs()) {
      MR_TRY_ASSIGN(body.inputs.emplace_back(), reference(input));
    }
    for (NodeId source : node.control_inputs()) {
      if (body_.contains(source)) {
        body.inputs.push_back("^" + graph_.node(source).name());
      } else if (auto arg = arg_names_.lower_bound({source, 0}); is_argument_node(source)) {
        body.inputs.push_back("^" + arg->second);
      }
    }
    function_->signature.traits.stateful |= node.op().traits.stateful;
    function_->nodes.push_back(std::move(body));
    return ok_status();
  }

  const Graph& graph_;
  std::span<const Output> args_;
  std::span<const Output> results_;
  std::span<const NodeId> effects_;
  Ref<Function> function_ = make_ref<Function>();
  std::map<std::pair<NodeId, int32_t>, std::string> arg_names_;
  std::set<NodeId> body_;
  std::set<std::string> taken_;
};

}  // namespace

Result<Ref<Function>> function_from_graph(const Graph& graph, std::string_view name,
                                          std::span<const Output> args,
                                          std::span<const Output> results,
                                          std::span<const NodeId> effects) {
  Result<Ref<Function>> function = Extraction(graph, args, results, effects).run(name);
  if (!function.ok()) return function.status().with_prefix(str_cat("function \"", name, "\""));
  return function;
}

Result<Ref<FunctionBody>> copy_body(const FunctionBody& body, Ref<FunctionLibrary> library,
                                    std::span<const TensorFacts> facts) {
  auto copy = make_ref<FunctionBody>();
  copy->graph = make_ref<Graph>(body.graph->registry(), std::move(library));
  for (NodeId id = 0; id < body.graph->num_nodes(); ++id) {
    const Node& node = body.graph->node(id);
    NodeSpec spec;
    spec.name = node.name();
    spec.op = node.op_name();
    spec.inputs.assign(node.inputs().begin(), node.inputs().end());
    spec.control_inputs.assign(node.control_inputs().begin(), node.control_inputs().end());
    spec.attrs = node.attrs();
    spec.device = node.device();
    spec.origin = node.origin();
    MR_TRY_ASSIGN(NodeId added, copy->graph->add(std::move(spec)));
    MR_CHECK(added == id);
    if (!node.op().traits.argument || facts.empty()) continue;
    MR_TRY_ASSIGN(int64_t index, node.attr<int64_t>("index"));
    TensorFacts known = facts[static_cast<size_t>(index)];
    known.constant = nullptr;  // it need not outlive the graph it comes from
    MR_TRY(copy->graph->set_argument_facts(id, std::move(known)));
  }
  copy->args = body.args;
  copy->results = body.results;
  copy->control_results = body.control_results;
  copy->arg_types = body.arg_types;
  copy->result_types = body.result_types;
  return copy;
}

}  // namespace millrace
