#include "millrace/autodiff/gradient_walk.h"

#include <algorithm>

#include "millrace/autodiff/aggregate.h"
#include "millrace/autodiff/forward_order.h"
#include "millrace/autodiff/gradient_registry.h"
#include "millrace/graph/function.h"

namespace millrace {
namespace {

size_t index(NodeId id) { return static_cast<size_t>(id); }

// No gradient goes through: by the op's nature, and nobody has given it a rule.
bool ends_gradients(const Node& node) {
  const OpDef& op = node.op();
  return op.traits.cannot_differentiate && op.gradient == nullptr && !node.op_owner() &&
         op.traits.functional == FunctionalOp::kNone &&
         node.attrs().find(kGradientOverride) == nullptr && !find_gradient(op.name);
}

}  // namespace

GradientWalk::GradientWalk(WalkContext context, std::span<const Output> ys,
                           std::span<const Output> xs, std::span<const Output> stops)
    : context_(std::move(context)), xs_(xs.begin(), xs.end()) {
  for (Output y : ys) roots_.push_back(y.node);
  order_ = forward_order(graph(), roots_);
  for (Output x : xs) is_x_[key(x)] = true;
  for (Output stop : stops) is_stop_[key(stop)] = true;
  dependent_.assign(static_cast<size_t>(graph().num_nodes()), false);
  for (NodeId id : order_) {
    const Node& node = graph().node(id);
    if (ends_gradients(node)) continue;
    for (Output input : node.inputs()) {
      if (flows(input)) dependent_[index(id)] = true;
    }
  }
  order_ = forward_order(graph(), roots_, [this](Output o) { return flows(o); });
}

bool GradientWalk::flows(Output o) const {
  if (is_x_.contains(key(o))) return true;
  return dependent_[index(o.node)] && !is_stop_.contains(key(o)) &&
         has_gradients(graph().output_type(o));
}

Gradient GradientWalk::take(Output o) {
  auto it = gradients_.find(key(o));
  if (it == gradients_.end()) return {};
  const bool colocated = context_.options.colocate && &context_.forward == &context_.backward;
  Gradient sum =
      colocated && it->second.size() > 1 ? sum_in_place(o, it->second) : sum_gradients(it->second);
  it->second = {sum};
  return sum;
}

const Node* GradientWalk::differentiated(const Gradient& gradient) const {
  if (gradient.values.builder() != &context_.backward) return nullptr;
  const Node& made = context_.backward.graph().node(static_cast<NodeId>(gradient.values.id()));
  const Result<std::vector<std::string>> group = made.attr<std::vector<std::string>>("_class");
  constexpr std::string_view kPrefix = "loc:@";
  if (!group.ok() || group->size() != 1 || !(*group)[0].starts_with(kPrefix)) return nullptr;
  const NodeId id = graph().find(std::string_view((*group)[0]).substr(kPrefix.size()));
  return id < 0 ? nullptr : &graph().node(id);
}

Gradient GradientWalk::sum_in_place(Output o, const std::vector<Gradient>& gradients) {
  struct Group {
    const Node* first = nullptr;  // of the operations that the gradients belong to
    std::vector<Gradient> gradients;
  };
  std::map<std::string, Group> devices;
  for (const Gradient& gradient : gradients) {
    const Node* of = differentiated(gradient);
    Group& group = devices[of == nullptr ? "" : of->device()];
    group.gradients.push_back(gradient);
    if (of != nullptr && (group.first == nullptr || of->id() < group.first->id())) {
      group.first = of;
    }
  }
  GraphBuilder::Context& now = context_.backward.context();
  const std::vector<std::string> before = now.colocate_with;
  std::vector<Gradient> sums;
  for (const auto& [device, group] : devices) {
    if (group.first != nullptr) now.colocate_with = {group.first->name()};
    sums.push_back(sum_gradients(group.gradients));
  }
  now.colocate_with = {graph().node(o.node).name()};
  const Gradient sum = sum_gradients(sums);
  now.colocate_with = before;
  return sum;
}

Result<std::vector<Gradient>> GradientWalk::run() {
  GraphBuilder::Context before = context_.backward.context();
  Status status;
  for (size_t i = order_.size(); i-- > 0 && status.ok();) {
    const Node& node = graph().node(order_[i]);
    if (!dependent_[index(node.id())]) continue;
    GraphBuilder::Context& now = context_.backward.context();
    now.scope = str_cat(before.scope, node.name(), "_grad/");
    if (node.origin() != 0) now.origin = node.origin();
    // Of a branch or a round the gradient is another body, where the node's name means nothing.
    const bool same_graph = &context_.forward == &context_.backward;
    if (context_.options.colocate && same_graph) now.colocate_with = {node.name()};
    status = differentiate(node);
    now = before;
  }
  MR_TRY(status);
  std::vector<Gradient> out;
  for (Output x : xs_) out.push_back(take(x));
  MR_TRY(context_.backward.status());
  return out;
}

Status GradientWalk::differentiate(const Node& node) {
  std::vector<Gradient> output_gradients;
  bool any = false;
  for (int i = 0; i < node.num_outputs(); ++i) {
    Output output = {node.id(), i};
    output_gradients.push_back(is_stop_.contains(key(output)) ? Gradient() : take(output));
    any |= output_gradients.back().valid();
  }
  if (!any) return ok_status();
  Status status = call_rule(node, std::move(output_gradients));
  if (status.ok()) status = context_.backward.status();
  return status.ok() ? status : annotate(node, status);
}

Status GradientWalk::annotate(const Node& node, const Status& status) const {
  Status out =
      status.with_prefix(str_cat("gradient of ", node.op_name(), " \"", node.name(), "\""));
  std::string where = describe_origin(node.origin());
  return where.empty() ? out : out.with_line(where);
}

// "y <- add <- node <- mul <- x"
std::string GradientWalk::path_through(NodeId id) const {
  // By node: the input by way of which it depends on the node `id`.
  std::map<NodeId, NodeId> towards = {{id, id}};
  for (NodeId other : order_) {
    for (Output input : graph().node(other).inputs()) {
      if (flows(input) && towards.contains(input.node)) towards.try_emplace(other, input.node);
    }
  }
  std::string path;
  for (NodeId y : roots_) {
    if (!towards.contains(y)) continue;
    for (int hops = 0; hops < 20 && y != id; ++hops, y = towards.at(y)) {
      path += str_cat(path.empty() ? "" : " <- ", graph().node(y).name());
    }
    if (y != id) path += " <- ...";
    break;
  }
  for (int hops = 0; hops < 20 && id >= 0; ++hops) {
    path += str_cat(path.empty() ? "" : " <- ", graph().node(id).name());
    NodeId next = -1;
    for (Output input : graph().node(id).inputs()) {
      if (!flows(input)) continue;
      if (is_x_.contains(key(input))) {
        return str_cat(path, " <- ", graph().output_name(input));
      }
      next = input.node;
    }
    id = next;
  }
  return path;
}

Status GradientWalk::call_rule(const Node& node, std::vector<Gradient> output_gradients) {
  const OpDef& op = node.op();
  std::vector<bool> wanted;
  for (Output input : node.inputs()) wanted.push_back(flows(input));
  auto add = [&](int i, const Gradient& gradient) {
    if (!gradient.valid() || !wanted[static_cast<size_t>(i)]) return;
    gradients_[key(node.input(i))].push_back(gradient);
  };

  GradientFunction override_rule;
  if (node.attrs().find(kGradientOverride) != nullptr) {
    MR_TRY_ASSIGN(std::string name, node.attr<std::string>(kGradientOverride));
    override_rule = find_gradient(name);
    if (const OpDef* other = context_.forward.graph().registry().find(name);
        !override_rule && other != nullptr && other->gradient != nullptr) {
      override_rule = other->gradient;
    }
    if (!override_rule) return not_found("no gradient is registered under the name '", name, "'");
  } else if (op.gradient == nullptr) {
    override_rule = find_gradient(op.name);
  }
  bool calls_by_name = node.op_owner() && !op.unknown;
  bool functional = calls_by_name || op.traits.functional != FunctionalOp::kNone;
  if (!override_rule && functional) {
    InputGradients inputs;
    if (calls_by_name) {
      MR_TRY_ASSIGN(
          inputs, call_gradients(context_, node, {node.op_name(), node.attrs()}, output_gradients));
    } else if (op.traits.functional == FunctionalOp::kSymbolicGradient) {
      MR_TRY_ASSIGN(FunctionAttr function, node.attr<FunctionAttr>("f"));
      MR_TRY_ASSIGN(std::string first, gradient_function(context_.forward, function));
      MR_TRY_ASSIGN(inputs, call_gradients(context_, node, {first, {}}, output_gradients));
    } else if (op.traits.functional == FunctionalOp::kWhile) {
      MR_TRY_ASSIGN(inputs, while_gradients(context_, node, output_gradients, wanted));
    } else {
      MR_TRY_ASSIGN(inputs, branch_gradients(context_, node, output_gradients, wanted));
    }
    // The node may have more inputs now than it had: lists for what is saved.
    for (size_t i = 0; i < inputs.size(); ++i) add(static_cast<int>(i), inputs[i]);
    return ok_status();
  }
  if (!override_rule && op.gradient == nullptr) {
    if (op.traits.cannot_differentiate) return ok_status();
    const bool primitive = op.traits.control_flow != ControlFlow::kNone;
    return not_found("No gradient defined for operation '", node.name(), "' (op type: ", op.name,
                     "), on the way ", path_through(node.id()),
                     primitive
                         ? ". Loops and branches of Switch and Merge nodes have no gradients: "
                           "export the graph again with control flow v2, as While and If nodes"
                         : ". Register one (tf.RegisterGradient in Python, register_gradient in "
                           "C++), or end the way before it (tf.stop_gradient)");
  }

  // What is computed again waits for the gradient to get here.
  NodeId here = -1;
  for (const Gradient& g : output_gradients) {
    if (g.valid()) here = GraphBuilder::output(g.values).node;
  }
  auto view = [&](Output o) {
    return context_.recomputation == nullptr ? context_.view(o)
                                             : context_.recomputation->view(o, here);
  };
  std::vector<Expr> inputs, outputs, gradients;
  for (Output input : node.inputs()) inputs.push_back(view(input));
  for (int i = 0; i < node.num_outputs(); ++i) {
    outputs.push_back(view({node.id(), i}));
    gradients.push_back(Expr());
  }
  std::vector<DType> types(node.input_types().begin(), node.input_types().end());
  GradientContext rule(context_.backward, std::move(inputs), std::move(outputs), gradients,
                       node.attrs(), std::move(types));
  for (int i = 0; i < node.num_outputs(); ++i) {
    rule.set_output_gradient(i, output_gradients[static_cast<size_t>(i)]);
  }
  rule.set_source(context_.source);
  MR_TRY(override_rule ? override_rule(rule) : op.gradient(rule));
  std::vector<Gradient> found = rule.input_gradients();
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (!wanted[static_cast<size_t>(i)]) found[static_cast<size_t>(i)] = {};
  }
  if (context_.options.gate_operations) MR_TRY(gate_all(found));
  for (int i = 0; i < node.num_inputs(); ++i) add(i, found[static_cast<size_t>(i)]);
  return ok_status();
}

Status GradientWalk::gate_all(std::vector<Gradient>& gradients) {
  std::vector<Expr> values;
  for (const Gradient& gradient : gradients) values.push_back(gradient.values);
  MR_TRY(gate(context_.backward, values));
  for (size_t i = 0; i < gradients.size(); ++i) gradients[i].values = values[i];
  return ok_status();
}

}  // namespace millrace
