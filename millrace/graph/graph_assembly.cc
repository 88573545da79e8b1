#include "millrace/graph/graph_assembly.h"

#include <algorithm>
#include <queue>
#include <utility>

namespace millrace {
namespace {

// How many tensors `args` stand for, without making a list of them. -1: more than an int32.
Result<int64_t> count_tensors(const std::vector<ArgDef>& args, const AttrMap& attrs) {
  int64_t total = 0;
  for (const ArgDef& arg : args) {
    int64_t count = 1;
    if (!arg.number_attr.empty()) {
      MR_TRY_ASSIGN(count, read_attr<int64_t>(attrs, arg.number_attr));
      if (count < 0) {
        return invalid_argument("attribute \"", arg.number_attr,
                                "\": expected a number of tensors, found ", count);
      }
    } else if (!arg.type_list_attr.empty()) {
      MR_TRY_ASSIGN(auto types, read_attr<std::vector<DType>>(attrs, arg.type_list_attr));
      count = static_cast<int64_t>(types.size());
    }
    if (count > INT32_MAX - total) return int64_t{-1};
    total += count;
  }
  return total;
}

// Types that stand in attributes become types of tensors, so they must be types.
Status check_types_of_attrs(const OpDef& op, const AttrMap& attrs) {
  for (const AttrDef& def : op.attrs) {
    const AttrValue* value = attrs.find(def.name);
    if (value == nullptr) continue;
    const auto* list = value->get<std::vector<DType>>();
    std::span<const DType> types;
    if (list != nullptr) types = *list;
    if (const auto* single = value->get<DType>()) types = {single, 1};
    for (DType type : types) {
      if (!is_valid(type) && !(type == DType::kInvalid && *value == def.default_value)) {
        return invalid_argument("attribute \"", def.name, "\": expected a known type, found ",
                                type);
      }
    }
  }
  return ok_status();
}

bool accepts(DType wanted, DType found) {
  return found == wanted || (is_ref(found) && base_type(found) == wanted);
}

std::string_view plural(int64_t n) { return n == 1 ? "" : "s"; }

}  // namespace

Status GraphAssembly::annotate(const Pending& node, const Status& status) {
  if (status.ok()) return status;
  Status result = status.with_prefix(str_cat(node.op, " \"", node.name, "\""));
  std::string origin = describe_origin(node.origin);
  return origin.empty() ? result : result.with_line(origin);
}

const OpDef* GraphAssembly::find_op(std::string_view op, Ref<Function>& function) const {
  if (const OpDef* def = graph_.registry().find(op)) return def;
  auto it = functions_.find(op);
  function = it != functions_.end() ? it->second : graph_.functions().find(op);
  return function ? &function->signature : nullptr;
}

Status GraphAssembly::charge_outputs(int64_t count) {
  if (count < 0 || count > budget_.outputs) {
    return resource_exhausted("expected at most ", budget_.outputs,
                              " more outputs in this graph, found ",
                              count < 0 ? std::string("more than 2147483647") : str_cat(count));
  }
  budget_.outputs -= count;
  return ok_status();
}

Result<int32_t> GraphAssembly::define(Pending node, int producer) {
  auto define = [&]() -> Status {
    for (const auto& [name, value] : node.attrs) {
      if (has_placeholder(value)) {
        return invalid_argument("attribute \"", name,
                                "\": expected a value, found a placeholder outside of a function");
      }
    }
    node.def = find_op(node.op, node.function);
    if (node.def == nullptr) return ok_status();
    if (node.def->deprecated_since > 0 && producer >= node.def->deprecated_since) {
      return unimplemented("the op is gone since graph version ", node.def->deprecated_since,
                           ", found in a graph of version ", producer, ": ", node.def->deprecation);
    }
    MR_TRY(check_attrs(*node.def, node.attrs));
    MR_TRY(check_types_of_attrs(*node.def, node.attrs));
    MR_TRY_ASSIGN(int64_t outputs, count_tensors(node.def->outputs, node.attrs));
    // Eight outputs are paid for by the node itself.
    MR_TRY(charge_outputs(outputs < 0 ? outputs : std::max<int64_t>(outputs - 8, 0)));
    MR_TRY_ASSIGN(node.output_types, expand_types(node.def->outputs, node.attrs));
    return ok_status();
  };
  Status status = define();
  if (!status.ok()) return annotate(node, status);
  nodes_.push_back(std::move(node));
  return size() - 1;
}

std::string GraphAssembly::name_of(Source source) const {
  const std::string& name =
      source.in_graph ? graph_.node(source.node).name() : node(source.node).name;
  return source.index > 0 ? str_cat(name, ":", source.index) : name;
}

DType GraphAssembly::type_of(Source source) const {
  if (source.in_graph) return graph_.output_type({source.node, source.index});
  return node(source.node).output_types[static_cast<size_t>(source.index)];
}

Status GraphAssembly::need_output(const Pending& consumer, std::string_view what, Source source) {
  int64_t outputs;
  std::string_view op;
  if (source.in_graph) {
    outputs = graph_.node(source.node).num_outputs();
    op = graph_.node(source.node).op_name();
  } else {
    Pending& producer = node(source.node);
    op = producer.op;
    int64_t needed = int64_t{source.index} + 1;
    int64_t missing = needed - static_cast<int64_t>(producer.output_types.size());
    if (producer.def == nullptr && missing > 0) {
      Status status = charge_outputs(missing);
      if (!status.ok()) return annotate(consumer, status.with_prefix(what));
      producer.output_types.resize(static_cast<size_t>(needed), DType::kInvalid);
    }
    outputs = static_cast<int64_t>(producer.output_types.size());
  }
  if (source.index < outputs) return ok_status();
  Source plain = {source.node, 0, source.in_graph};
  return annotate(consumer,
                  invalid_argument(what, ": expected an output number below ", outputs, " (", op,
                                   " \"", name_of(plain), "\" has ", outputs, " output",
                                   plural(outputs), "), found ", source.index));
}

bool GraphAssembly::is_back_edge(const Pending& consumer, size_t i) const {
  const Source& source = consumer.inputs[i];
  if (source.in_graph || consumer.def == nullptr) return false;
  const OpDef* producer = node(source.node).def;
  return consumer.def->traits.control_flow == ControlFlow::kMerge && producer != nullptr &&
         producer->traits.control_flow == ControlFlow::kNextIteration;
}

Status GraphAssembly::check_inputs(Pending& node) {
  if (node.def != nullptr) {
    MR_TRY_ASSIGN(int64_t expected, count_tensors(node.def->inputs, node.attrs));
    int64_t found = static_cast<int64_t>(node.inputs.size());
    if (expected != found) {
      return invalid_argument(
          "expected ", expected < 0 ? std::string("more than 2147483647") : str_cat(expected),
          " input", plural(expected), ", found ", found);
    }
    MR_TRY_ASSIGN(node.input_types, expand_types(node.def->inputs, node.attrs));
  }
  size_t back_edges = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) back_edges += is_back_edge(node, i);
  if (back_edges > 0 && back_edges == node.inputs.size()) {
    return invalid_argument("expected an input from outside of the loop, found only NextIteration");
  }
  return ok_status();
}

// An unknown op's outputs have the types that their consumers ask for, when these agree.
Status GraphAssembly::guess_unknown_types() {
  for (const Pending& consumer : nodes_) {
    for (size_t i = 0; i < consumer.input_types.size(); ++i) {
      Source source = consumer.inputs[i];
      if (source.in_graph || node(source.node).def != nullptr) continue;
      DType& guess = node(source.node).output_types[static_cast<size_t>(source.index)];
      DType wanted = consumer.input_types[i];
      if (guess == DType::kInvalid || accepts(guess, wanted)) {
        guess = wanted;
      } else if (!accepts(wanted, guess)) {
        return annotate(
            consumer, invalid_argument("input ", i, " \"", name_of(source), "\": expected ", wanted,
                                       ", found ", guess, ", as another node takes it"));
      }
    }
  }
  return ok_status();
}

Status GraphAssembly::check_types(const Pending& node) const {
  for (size_t i = 0; i < node.input_types.size(); ++i) {
    DType wanted = node.input_types[i];
    DType found = type_of(node.inputs[i]);
    if (!accepts(wanted, found)) {
      return invalid_argument("input ", i, " \"", name_of(node.inputs[i]), "\": expected ", wanted,
                              ", found ", found);
    }
  }
  return ok_status();
}

// Says which nodes wait for each other in a circle; `waiting` counts the inputs each still waits
// for.
Status GraphAssembly::cycle_error(const std::vector<int>& waiting) const {
  // Every node that waits has an input that waits, so walking backwards must come around.
  auto waiting_input = [&](int32_t i) {
    const Pending& n = node(i);
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const Source& s = n.inputs[k];
      if (!s.in_graph && !is_back_edge(n, k) && waiting[static_cast<size_t>(s.node)] > 0)
        return s.node;
    }
    for (const Source& s : n.control_inputs) {
      if (!s.in_graph && waiting[static_cast<size_t>(s.node)] > 0) return s.node;
    }
    return int32_t{-1};
  };
  int32_t at = 0;
  while (waiting[static_cast<size_t>(at)] == 0) ++at;
  std::vector<char> seen(nodes_.size(), 0);
  for (; seen[static_cast<size_t>(at)] == 0; at = waiting_input(at))
    seen[static_cast<size_t>(at)] = 1;
  std::vector<int32_t> cycle = {at};
  for (int32_t next = waiting_input(at); next != at; next = waiting_input(next))
    cycle.push_back(next);
  std::string path = node(at).name;
  constexpr size_t kShown = 8;
  for (size_t k = 0; k < cycle.size() && k < kShown; ++k) {
    path += " -> " + node(cycle[cycle.size() - 1 - k]).name;
  }
  if (cycle.size() > kShown) path += " -> ...";
  return annotate(
      node(at),
      invalid_argument("expected no cycle but through NextIteration to Merge, found ", cycle.size(),
                       " node", plural(static_cast<int64_t>(cycle.size())), " in a cycle: ", path));
}

// A topological order that keeps the given one where it can.
Status GraphAssembly::sort() {
  size_t n = nodes_.size();
  std::vector<int> waiting(n, 0);
  std::vector<std::pair<int32_t, int32_t>> edges;  // producer, consumer
  for (int32_t i = 0; i < size(); ++i) {
    const Pending& consumer = node(i);
    for (size_t k = 0; k < consumer.inputs.size(); ++k) {
      if (!consumer.inputs[k].in_graph && !is_back_edge(consumer, k)) {
        edges.emplace_back(consumer.inputs[k].node, i);
      }
    }
    for (const Source& source : consumer.control_inputs) {
      if (!source.in_graph) edges.emplace_back(source.node, i);
    }
  }
  std::sort(edges.begin(), edges.end());
  std::vector<size_t> first(n + 1, 0);  // of a producer's edges
  for (auto [producer, consumer] : edges) {
    ++waiting[static_cast<size_t>(consumer)];
    ++first[static_cast<size_t>(producer) + 1];
  }
  for (size_t i = 0; i < n; ++i) first[i + 1] += first[i];

  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> ready;
  for (int32_t i = 0; i < size(); ++i) {
    if (waiting[static_cast<size_t>(i)] == 0) ready.push(i);
  }
  order_.clear();
  while (!ready.empty()) {
    int32_t i = ready.top();
    ready.pop();
    order_.push_back(i);
    for (size_t e = first[static_cast<size_t>(i)]; e < first[static_cast<size_t>(i) + 1]; ++e) {
      if (--waiting[static_cast<size_t>(edges[e].second)] == 0) ready.push(edges[e].second);
    }
  }
  return order_.size() == n ? ok_status() : cycle_error(waiting);
}

// The graph infers again as nodes are added: done here first, so that a shape error comes before
// anything changed.
Status GraphAssembly::infer_shapes(Pending& node) {
  if (node.def == nullptr) {
    node.facts.resize(node.output_types.size());
    return ok_status();
  }
  // What comes around a loop is not known yet: a later iteration may have another shape than the
  // first.
  const TensorFacts unknown;
  std::vector<const TensorFacts*> facts;
  facts.reserve(node.inputs.size());
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Source& source = node.inputs[i];
    if (source.in_graph) {
      facts.push_back(&graph_.facts({source.node, source.index}));
    } else if (is_back_edge(node, i)) {
      facts.push_back(&unknown);
    } else {
      facts.push_back(&this->node(source.node).facts[static_cast<size_t>(source.index)]);
    }
  }
  ShapeContext context(*node.def, node.attrs, std::move(facts), node.input_types,
                       node.output_types);
  MR_TRY_ASSIGN(node.facts, infer(context));
  return ok_status();
}

Status GraphAssembly::check_back_edges(const Pending& node) const {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!is_back_edge(node, i)) continue;
    const Source& source = node.inputs[i];
    const PartialShape& shape =
        this->node(source.node).facts[static_cast<size_t>(source.index)].shape;
    if (!node.facts.empty() && !shape.compatible(node.facts[0].shape)) {
      return invalid_argument("input ", i, " \"", name_of(source), "\": expected shape ",
                              node.facts[0].shape, " as in the iteration before, found ", shape);
    }
  }
  return ok_status();
}

Status GraphAssembly::check() {
  for (Pending& node : nodes_) {
    Status status = check_inputs(node);
    if (!status.ok()) return annotate(node, status);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      MR_TRY(need_output(node, str_cat("input ", i), node.inputs[i]));
    }
  }
  MR_TRY(guess_unknown_types());
  for (Pending& node : nodes_) {
    Status status = check_types(node);
    if (!status.ok()) return annotate(node, status);
  }
  MR_TRY(sort());
  for (int32_t i : order_) {
    Status status = infer_shapes(node(i));
    if (!status.ok()) return annotate(node(i), status);
  }
  for (const Pending& node : nodes_) {
    Status status = check_back_edges(node);
    if (!status.ok()) return annotate(node, status);
  }
  return ok_status();
}

Status GraphAssembly::commit() {
  struct BackEdge {
    int32_t merge;
    int index;
    Source source;
  };
  std::vector<BackEdge> back_edges;
  for (int32_t i : order_) {
    Pending& node = this->node(i);
    NodeSpec spec;
    spec.name = std::move(node.name);
    spec.op = node.op;
    spec.device = std::move(node.device);
    spec.attrs = std::move(node.attrs);
    spec.origin = node.origin;
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const Source& source = node.inputs[k];
      if (is_back_edge(node, k)) {
        back_edges.push_back({i, static_cast<int>(k), source});
        spec.back_edges.push_back(static_cast<int32_t>(k));
        spec.inputs.push_back(Output{});
      } else {
        NodeId id = source.in_graph ? source.node : this->node(source.node).id;
        spec.inputs.push_back({id, source.index});
      }
    }
    // Until its back edges are set, the Merge takes what enters the loop in their place.
    for (int32_t k : spec.back_edges) {
      spec.inputs[static_cast<size_t>(k)] =
          *std::find_if(spec.inputs.begin(), spec.inputs.end(), [](Output o) { return o.valid(); });
    }
    for (const Source& source : node.control_inputs) {
      spec.control_inputs.push_back(source.in_graph ? source.node : this->node(source.node).id);
    }
    if (node.def != nullptr) {
      MR_TRY_ASSIGN(node.id, graph_.add(std::move(spec)));
    } else {
      MR_TRY_ASSIGN(node.id, graph_.add_unknown(std::move(spec), node.output_types));
    }
  }
  for (const BackEdge& edge : back_edges) {
    MR_TRY(graph_.set_back_edge(node(edge.merge).id, edge.index,
                                {node(edge.source.node).id, edge.source.index}));
  }
  return ok_status();
}

}  // namespace millrace
