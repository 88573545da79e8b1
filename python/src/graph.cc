#include "python/src/graph.h"

#include <nanobind/stl/string.h>

#include <algorithm>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_registry.h"
#include "python/src/eager_tensor.h"
#include "python/src/elements.h"
#include "python/src/origin.h"
#include "python/src/status.h"

namespace millrace::python {

PyGraph::PyGraph() : graph_(make_ref<Graph>()), own_(std::make_unique<GraphBuilder>(*graph_)) {
  builder_ = own_.get();
}

PyGraph::PyGraph(Ref<FunctionLibrary> functions)
    : graph_(make_ref<Graph>(OpRegistry::global(), std::move(functions))),
      own_(std::make_unique<GraphBuilder>(*graph_)),
      captures_values_(true) {
  builder_ = own_.get();
}

PyGraph& PyGraph::root() {
  PyGraph* graph = this;
  while (graph->outer_ != nullptr) graph = graph->outer_;
  return *graph;
}

bool PyGraph::captures(const PyGraph& other) {
  if (other.detached()) return false;
  PyGraph& mine = root();
  return mine.captures_values_ && &const_cast<PyGraph&>(other).root() != &mine;
}

namespace {

// A node that stands for a value from outside, and tells as much as is known of it.
NodeSpec stand_in(DType dtype, PartialShape shape,
                  const std::vector<ResourceHandle::DTypeAndShape>& held) {
  NodeSpec spec;
  // The first version takes a scalar's shape for none.
  spec.op = shape.rank() == 0 ? "PlaceholderV2" : "Placeholder";
  spec.attrs = {{"dtype", dtype}, {"shape", std::move(shape)}};
  if (dtype == DType::kResource && !held.empty()) {
    spec.op = "VarHandleOp";
    spec.attrs = {{"dtype", held[0].dtype}, {"shape", held[0].shape}};
  }
  return spec;
}

NodeSpec stand_in_for(nb::handle value) {
  if (is_eager_tensor(value)) {
    const eager::EagerTensor& tensor = eager_tensor(value);
    std::vector<ResourceHandle::DTypeAndShape> held;
    if (tensor.dtype() == DType::kResource && tensor.tensor().num_elements() == 1) {
      held = tensor.tensor().item<ResourceHandle>().contents;
    }
    return stand_in(tensor.dtype(), tensor.shape(), held);
  }
  const Graph& graph = graph_of(value).graph();
  const Output output = output_of(value);
  const Node& node = graph.node(output.node);
  const DType dtype = base_type(graph.output_type(output));
  const TensorFacts& facts = graph.facts(output);
  if (node.op().traits.constant && !has_gradients(dtype)) {
    NodeSpec spec;
    spec.op = node.op_name();
    spec.attrs = node.attrs();
    return spec;
  }
  return stand_in(dtype, facts.shape, facts.resource);
}

}  // namespace

Output PyGraph::capture_value(nb::handle value) {
  const void* key = is_eager_tensor(value) ? static_cast<const void*>(&eager_tensor(value))
                                           : static_cast<const void*>(value.ptr());
  const auto [known, fresh] = value_numbers_.try_emplace(key, values_.size());
  if (!fresh) return values_[known->second].second;
  NodeSpec spec = stand_in_for(value);
  spec.name = graph_->unique_name("captured");
  const Output output = {unwrap_value(graph_->add(std::move(spec))), 0};
  values_.emplace_back(nb::borrow(value), output);
  return output;
}

nb::list PyGraph::captured_values() {
  nb::list out;
  for (const auto& [value, output] : values_) out.append(nb::make_tuple(value, tensor(output)));
  return out;
}

Places& PyGraph::places() const {
  if (!places_by_thread_) return places_;
  std::unique_ptr<Places>& own = here().places;
  if (own == nullptr) own = std::make_unique<Places>(places_);
  return *own;
}

std::string PyGraph::unique_name(std::string_view full, bool mark) {
  if (mark) {
    std::string name = graph_->unique_name(full);
    marked_names_.insert(name);
    return name;
  }
  std::string name(full);
  for (int n = 1; graph_->find(name) >= 0 || marked_names_.contains(name); ++n) {
    name = str_cat(full, "_", n);
  }
  return name;
}

void PyGraph::attach(GraphBuilder& builder) {
  builder_ = &builder;
  graph_ = Ref<Graph>(&builder.graph());
}

void PyGraph::detach() {
  builder_ = nullptr;
  if (outer_ != nullptr) outer_->nodes_of_bodies_ += nodes_of_bodies_ + graph_->num_nodes();
}

int64_t PyGraph::last_id() const {
  int64_t count = 0;
  for (const PyGraph* g = this; g != nullptr; g = g->outer_) {
    count += g->nodes_of_bodies_ + g->graph_->num_nodes();
  }
  return count;
}

bool PyGraph::is_ancestor_of(const PyGraph& other) const {
  for (const PyGraph* g = &other; g != nullptr; g = g->outer_) {
    if (g == this) return true;
  }
  return false;
}

GraphBuilder& PyGraph::builder(std::string_view what) {
  if (finalized) {
    std::string message = "Graph is finalized and cannot be modified.";
    if (!what.empty()) message += str_cat(" ", what, " was to be added.");
    const std::string line = describe_origin(user_origin());
    if (!line.empty()) message += str_cat("\n", line);
    PyErr_SetString(PyExc_RuntimeError, message.c_str());
    throw nb::python_error();
  }
  if (builder_ == nullptr) {
    PyErr_SetString(
        PyExc_ValueError,
        "The branch or loop body that this graph belongs to is finished: nothing can be "
        "added to it any more.");
    throw nb::python_error();
  }
  return *builder_;
}

GraphBuilder& PyGraph::ready_builder() {
  GraphBuilder& b = builder();
  GraphBuilder::Context& context = b.context();
  context.scope = here().scope;
  context.device = places().device;
  context.control_inputs = control_inputs_for({});
  context.colocate_with = places().colocation;
  context.origin = user_origin();
  context.attrs = attrs;
  return b;
}

std::vector<NodeId> PyGraph::control_inputs_for(const std::vector<Output>& inputs) const {
  std::vector<NodeId> out;
  for (const Controller& controller : here().controllers) {
    auto made_inside = [&](Output input) { return controller.seen.contains(input.node); };
    if (std::any_of(inputs.begin(), inputs.end(), made_inside)) continue;
    for (NodeId id : controller.inputs) {
      auto is_input = [&](Output input) { return input.node == id; };
      if (std::none_of(inputs.begin(), inputs.end(), is_input)) out.push_back(id);
    }
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::vector<NodeId> PyGraph::outer_waits(const std::vector<Expr>& results) const {
  std::vector<NodeId> out = outer_control_inputs;
  if (outer_controllers.empty()) return out;
  std::vector<NodeId> todo;
  std::unordered_set<NodeId> needed;
  const auto need = [&](NodeId id) {
    if (needed.insert(id).second) todo.push_back(id);
  };
  for (Expr result : results) need(GraphBuilder::output(result).node);
  while (!todo.empty()) {
    const Node& node = graph_->node(todo.back());
    todo.pop_back();
    for (Output input : node.inputs()) need(input.node);
    for (NodeId control : node.control_inputs()) need(control);
  }
  for (const Controller& controller : outer_controllers) {
    const auto is_needed = [&](NodeId id) { return needed.contains(id); };
    if (std::none_of(controller.seen.begin(), controller.seen.end(), is_needed)) continue;
    out.insert(out.end(), controller.outer_inputs.begin(), controller.outer_inputs.end());
  }
  return out;
}

void PyGraph::made(NodeId id) {
  for (Controller& controller : here().controllers) controller.seen.insert(id);
  if (places().device_functions) nb::handle(self_).attr("_apply_device_functions")(operation(id));
}

NodeId PyGraph::add(const std::string& op, std::string name, std::vector<Output> inputs,
                    AttrMap node_attrs) {
  builder(finalized ? str_cat(op, " \"", name, "\"") : "");  // may it be changed at all?
  NodeSpec spec;
  spec.op = op;
  spec.name = std::move(name);
  spec.control_inputs = control_inputs_for(inputs);
  const Places& places = this->places();
  spec.device = places.device;
  spec.origin = user_origin();
  spec.inputs = std::move(inputs);
  spec.attrs = std::move(node_attrs);
  for (const auto& [key, value] : attrs) {
    if (spec.attrs.find(key) == nullptr) spec.attrs.set(key, value);
  }
  if (!gradient_overrides.empty()) {
    const auto rule = gradient_overrides.find(op);
    if (rule != gradient_overrides.end()) spec.attrs.set("_gradient_op_type", rule->second);
  }
  if (!kernel_labels.empty()) {
    const auto label = kernel_labels.find(op);
    if (label != kernel_labels.end()) spec.attrs.set("_kernel", label->second);
  }
  if (!places.colocation.empty()) {
    std::vector<std::string> groups;
    if (spec.attrs.find("_class") != nullptr) {
      groups = unwrap_value(read_attr<std::vector<std::string>>(spec.attrs, "_class"));
    }
    for (const std::string& other : places.colocation) groups.push_back("loc:@" + other);
    std::sort(groups.begin(), groups.end());
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    spec.attrs.set("_class", std::move(groups));
  }
  const std::vector<Output> given = spec.inputs;
  const Result<NodeId> added = graph_->add(std::move(spec));
  if (!added.ok()) {
    raise_value_error(given.empty() ? added.status()
                                    : added.status().with_line(describe_inputs(*graph_, given)));
  }
  const NodeId id = *added;
  if (!here().controllers.empty() || places.device_functions) made(id);
  return id;
}

}  // namespace millrace::python
