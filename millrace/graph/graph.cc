#include "millrace/graph/graph.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <new>
#include <unordered_map>
#include <unordered_set>

#include "millrace/base/hash.h"
#include "millrace/base/mutex.h"
#include "millrace/graph/function.h"
#include "millrace/graph/graph_def.h"

namespace millrace {

namespace {

struct NameHash {
  using is_transparent = void;
  size_t operator()(std::string_view name) const { return hash_bytes(name); }
};

// The definition of an op that nobody registered.
struct UnknownOp : RefCounted {
  OpDef def;
};

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}
bool is_name_char(char c) {
  return is_letter_or_digit(c) || c == '.' || c == '_' || c == '-' || c == '/' || c == '>';
}
bool all_name_chars(std::string_view text) {
  return std::all_of(text.begin(), text.end(), is_name_char);
}
// What a graph takes: users' names and the runtime's.
bool is_any_node_name(std::string_view name) {
  return is_valid_node_name(name) || (name.starts_with('_') && all_name_chars(name));
}

Status with_node(const Status& status, std::string_view op, std::string_view name,
                 OriginId origin) {
  Status out = status.with_prefix(str_cat(op, " \"", name, "\""));
  const std::string where = describe_origin(origin);
  return where.empty() ? out : out.with_line(where);
}

// A reference can be read wherever its value is asked for; a reference must come from one.
bool fits(DType source, DType wanted) {
  return source == wanted || (is_ref(source) && base_type(source) == wanted);
}

// Removes repeats, keeping the order.
void deduplicate(std::vector<NodeId>& ids) {
  constexpr size_t kFew = 16;
  std::unordered_set<NodeId> seen;
  size_t kept = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto end = ids.begin() + static_cast<ptrdiff_t>(kept);
    const bool fresh = ids.size() <= kFew ? std::find(ids.begin(), end, ids[i]) == end
                                          : seen.insert(ids[i]).second;
    if (fresh) ids[kept++] = ids[i];
  }
  ids.resize(kept);
}

}  // namespace

struct Graph::Impl {
  mutable Mutex mu;
  // Keys are the nodes' own names, which never move.
  std::unordered_map<std::string_view, NodeId, NameHash> names MR_GUARDED_BY(mu);
  // Given out by unique_name(), no node yet.
  std::unordered_set<std::string, NameHash, std::equal_to<>> reserved MR_GUARDED_BY(mu);
  // Per base name, the suffix to try next.
  std::unordered_map<std::string, int64_t, NameHash, std::equal_to<>> next_suffix MR_GUARDED_BY(mu);
  std::unordered_map<std::string, Ref<UnknownOp>> unknown_ops MR_GUARDED_BY(mu);
  // Former attributes of constants: facts of other nodes may point at the tensor in them.
  std::vector<AttrMap> retired MR_GUARDED_BY(mu);
  // What nodes were before they were widened: readers may still be looking at it.
  std::vector<std::unique_ptr<Node::Body>> former MR_GUARDED_BY(mu);
  int frozen MR_GUARDED_BY(mu) = 0;
  // Some input comes from a node with a higher number than its own, so the numbers alone no longer
  // rule a cycle out.
  bool has_forward_edges MR_GUARDED_BY(mu) = false;
};

Graph::Graph(const OpRegistry& registry) : Graph(registry, make_ref<FunctionLibrary>()) {}

Graph::Graph(const OpRegistry& registry, Ref<FunctionLibrary> functions)
    : registry_(registry),
      impl_(new Impl),
      functions_(functions.detach()),
      producer_version_(kGraphVersion),
      // Pages of the table that no chunk uses are never touched.
      // NOLINTNEXTLINE(bugprone-sizeof-expression)
      chunks_(static_cast<Node**>(std::calloc(kMaxChunks, sizeof(Node*)))) {
  MR_CHECK(chunks_ != nullptr);
}

Graph::~Graph() {
  const int count = num_nodes();
  for (NodeId id = 0; id < count; ++id) mutable_node(id).~Node();
  for (int i = 0; i < kMaxChunks && chunks_[i] != nullptr; ++i) {
    ::operator delete(chunks_[i], std::align_val_t(alignof(Node)));
  }
  std::free(chunks_);
  functions_->release();
  delete impl_;
}

Status Graph::check_name(std::string_view name) const {
  constexpr size_t kLongest = size_t{1} << 16;
  if (name.size() > kLongest) {
    return invalid_argument("the name has ", name.size(), " characters, more than ", kLongest);
  }
  if (!is_any_node_name(name)) {
    return invalid_argument(
        "not a valid node name: expected a letter, digit or '.', then also '_', '-', '/', '>'");
  }
  return ok_status();
}

Status Graph::find_op(const std::string& name, Node& node) const {
  node.op_ = registry_.find(name);
  if (node.op_ == nullptr) {
    if (Ref<Function> function = functions_->find(name)) {
      node.op_ = &function->signature;
      node.op_owner_ = std::move(function);
      return ok_status();
    }
    return registry_.lookup(name).status();
  }
  const OpDef& op = *node.op_;
  if (op.deprecated_since > 0 && producer_version_ >= op.deprecated_since) {
    return unimplemented("Op ", op.name, " is not available in GraphDef version ",
                         producer_version_, ". It has been removed in version ",
                         op.deprecated_since, ". ", op.deprecation);
  }
  return ok_status();
}

Status Graph::connect(NodeSpec& spec, Node& node) const {
  const int count = num_nodes();
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const Output input = spec.inputs[i];
    if (input.node < 0 || input.node >= count) {
      return invalid_argument("input ", i, " comes from node number ", input.node,
                              "; the graph has ", count, " nodes");
    }
    const Node& source = this->node(input.node);
    if (input.index < 0 || input.index >= source.num_outputs()) {
      return invalid_argument("input ", i, " is output ", input.index, " of \"", source.name(),
                              "\", which has ", source.num_outputs(), " outputs");
    }
    if (node.op_->unknown) continue;
    const DType type = source.output_type(input.index);
    if (!fits(type, node.body().input_types[i])) {
      return invalid_argument("input ", i, " (\"", output_name(input), "\") is ", type,
                              ", expected ", node.body().input_types[i]);
    }
  }
  for (NodeId id : spec.control_inputs) {
    if (id < 0 || id >= count) {
      return invalid_argument("a control input comes from node number ", id, "; the graph has ",
                              count, " nodes");
    }
  }
  deduplicate(spec.control_inputs);
  node.body().inputs = std::move(spec.inputs);
  node.control_inputs_ = std::move(spec.control_inputs);
  return ok_status();
}

Result<std::vector<TensorFacts>> Graph::infer_node(const OpDef& op, const Node::Body& body,
                                                   const AttrMap& attrs) const {
  std::vector<const TensorFacts*> inputs;
  inputs.reserve(body.inputs.size());
  for (Output input : body.inputs) inputs.push_back(&facts(input));
  ShapeContext context(op, attrs, std::move(inputs), body.input_types, body.output_types);
  return infer(context);
}

// Other nodes may rest on what inference said of this one: `attrs` must not change it.
Status Graph::check_same_facts(const Node& node, const AttrMap& attrs) const {
  MR_TRY_ASSIGN(const std::vector<TensorFacts> before,
                infer_node(*node.op_, node.body(), node.body().attrs));
  MR_TRY_ASSIGN(const std::vector<TensorFacts> after, infer_node(*node.op_, node.body(), attrs));
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i].shape != after[i].shape) {
      return invalid_argument("output ", i, " has shape ", before[i].shape, ", would have ",
                              after[i].shape);
    }
    const bool same_constant = before[i].constant == nullptr || after[i].constant == nullptr ||
                               bit_equal(*before[i].constant, *after[i].constant);
    if (before[i].value != after[i].value || !same_constant) {
      return invalid_argument("output ", i, " would have another value");
    }
  }
  return ok_status();
}

Result<NodeId> Graph::add_locked(NodeSpec& spec) {
  Node node;
  MR_TRY(check_name(spec.name));
  MR_TRY(find_op(spec.op, node));
  MR_TRY(check_attrs(*node.op_, spec.attrs));
  MR_TRY_ASSIGN(node.body().input_types, expand_types(node.op_->inputs, spec.attrs));
  if (node.body().input_types.size() != spec.inputs.size()) {
    return invalid_argument("expected ", node.body().input_types.size(), " inputs, got ",
                            spec.inputs.size());
  }
  MR_TRY(connect(spec, node));
  for (int32_t i : spec.back_edges) {
    if (node.op_->traits.control_flow != ControlFlow::kMerge || i < 0 || i >= node.num_inputs()) {
      return invalid_argument("input ", i, " cannot be a back edge: expected an input of a Merge");
    }
  }
  MR_TRY_ASSIGN(node.body().output_types, expand_types(node.op_->outputs, spec.attrs));
  node.body().attrs = std::move(spec.attrs);

  std::vector<const TensorFacts*> inputs;
  inputs.reserve(node.body().inputs.size());
  for (Output input : node.body().inputs) inputs.push_back(&facts(input));
  // A later iteration may bring another shape than the first.
  const TensorFacts nothing_known;
  for (int32_t i : spec.back_edges) inputs[static_cast<size_t>(i)] = &nothing_known;
  // The facts of a constant point into attrs_, whose elements stay in place when the node moves.
  ShapeContext context(*node.op_, node.body().attrs, std::move(inputs), node.body().input_types,
                       node.body().output_types);
  MR_TRY_ASSIGN(node.body().facts, infer(context));
  node.name_ = std::move(spec.name);
  node.device_ = std::move(spec.device);
  node.origin_ = spec.origin;
  return publish(std::move(node));
}

Result<NodeId> Graph::add(NodeSpec spec) {
  MutexLock lock(impl_->mu);
  // The name and op move into the node only when nothing can fail any more, so that an error can
  // name them.
  Result<NodeId> id = impl_->names.contains(spec.name)
                          ? invalid_argument("the graph has a node of that name already")
                          : add_locked(spec);
  if (!id.ok()) return with_node(id.status(), spec.op, spec.name, spec.origin);
  impl_->names.emplace(node(*id).name_, *id);
  if (!impl_->reserved.empty()) impl_->reserved.erase(node(*id).name_);
  return id;
}

Result<NodeId> Graph::add_unknown(NodeSpec spec, std::vector<DType> output_types) {
  MutexLock lock(impl_->mu);
  Node node;
  Ref<UnknownOp>& op = impl_->unknown_ops[spec.op];
  if (!op) {
    op = make_ref<UnknownOp>();
    op->def.name = spec.op;
    op->def.unknown = true;
    op->def.traits.stateful = true;
  }
  node.op_ = &op->def;
  node.op_owner_ = op;
  Status status = check_name(spec.name);
  if (status.ok() && impl_->names.contains(spec.name)) {
    status = invalid_argument("the graph has a node of that name already");
  }
  if (status.ok()) status = connect(spec, node);
  if (!status.ok()) return with_node(status, spec.op, spec.name, spec.origin);
  for (Output input : node.body().inputs)
    node.body().input_types.push_back(base_type(output_type(input)));
  node.body().facts.resize(output_types.size());
  node.body().output_types = std::move(output_types);
  node.body().attrs = std::move(spec.attrs);
  node.name_ = std::move(spec.name);
  node.device_ = std::move(spec.device);
  node.origin_ = spec.origin;
  MR_TRY_ASSIGN(const NodeId id, publish(std::move(node)));
  impl_->names.emplace(this->node(id).name_, id);
  impl_->reserved.erase(this->node(id).name_);
  return id;
}

Result<NodeId> Graph::publish(Node node) {
  const NodeId id = published_.load(std::memory_order_relaxed);
  if (id >= kMaxChunks * kChunkSize) {
    return resource_exhausted("a graph holds at most ", kMaxChunks * kChunkSize, " nodes");
  }
  Node*& chunk = chunks_[id >> kChunkBits];
  if (chunk == nullptr) {
    chunk = static_cast<Node*>(
        ::operator new(sizeof(Node) * kChunkSize, std::align_val_t(alignof(Node))));
  }
  node.id_ = id;
  new (&chunk[id & (kChunkSize - 1)]) Node(std::move(node));
  published_.store(id + 1, std::memory_order_release);
  return id;
}

NodeId Graph::find(std::string_view name) const {
  MutexLock lock(impl_->mu);
  const auto it = impl_->names.find(name);
  return it == impl_->names.end() ? -1 : it->second;
}

Result<NodeId> Graph::lookup(std::string_view name) const {
  const NodeId id = find(name);
  if (id < 0) return not_found("the graph has no node named \"", name, "\"");
  return id;
}

Result<Output> Graph::parse_output(std::string_view text) const {
  MR_TRY_ASSIGN(const TensorName name, parse_tensor_name(text));
  if (name.index < 0) {
    return invalid_argument("expected a tensor (\"node\" or \"node:0\"), got the control edge \"",
                            text, "\"");
  }
  MR_TRY_ASSIGN(const NodeId id, lookup(name.node));
  if (name.index >= node(id).num_outputs()) {
    return invalid_argument("\"", text, "\": node \"", name.node, "\" has ", node(id).num_outputs(),
                            " outputs");
  }
  return Output{id, name.index};
}

std::string Graph::output_name(Output output) const {
  return str_cat(node(output.node).name(), ":", output.index);
}

Status Graph::check_mutable(NodeId id) const {
  if (id < 0 || id >= num_nodes()) {
    return invalid_argument("no node number ", id, "; the graph has ", num_nodes(), " nodes");
  }
  return ok_status();
}

namespace {

Status check_not_frozen(const Node& node, int frozen) {
  if (node.id() >= frozen) return ok_status();
  return failed_precondition(node.op_name(), " \"", node.name(),
                             "\": a session has taken this node, it cannot change any more");
}

}  // namespace

Status Graph::set_back_edge(NodeId merge, int index, Output source) {
  MutexLock lock(impl_->mu);
  MR_TRY(check_mutable(merge));
  MR_TRY(check_mutable(source.node));
  Node& target = mutable_node(merge);
  const Node& from = node(source.node);
  MR_TRY(check_not_frozen(target, impl_->frozen));
  auto refuse = [&](const auto&... parts) {
    return with_node(invalid_argument(parts...), target.op_name(), target.name(), target.origin());
  };
  if (target.op().traits.control_flow != ControlFlow::kMerge) {
    return refuse("a back edge must end in a Merge");
  }
  if (index < 0 || index >= target.num_inputs()) {
    return refuse("no input ", index, "; there are ", target.num_inputs());
  }
  if (from.op().traits.control_flow != ControlFlow::kNextIteration || source.index < 0 ||
      source.index >= from.num_outputs()) {
    return refuse("a back edge must come from an output of a NextIteration, got output ",
                  source.index, " of ", from.op_name(), " \"", from.name(), "\"");
  }
  const DType type = from.output_type(source.index);
  if (!fits(type, target.input_type(index))) {
    return refuse("the back edge \"", output_name(source), "\" is ", type, ", expected ",
                  target.input_type(index));
  }
  const PartialShape& shape = from.output_shape(source.index);
  if (!shape.compatible(target.output_shape(0))) {
    return refuse("the shape changes over an iteration: it enters as ", target.output_shape(0),
                  " and comes back as ", shape, " from \"", from.name(), "\"");
  }
  target.body().inputs[static_cast<size_t>(index)] = source;
  return ok_status();
}

Status Graph::set_device(NodeId id, std::string device) {
  MutexLock lock(impl_->mu);
  MR_TRY(check_mutable(id));
  MR_TRY(check_not_frozen(node(id), impl_->frozen));
  mutable_node(id).device_ = std::move(device);
  return ok_status();
}

Status Graph::set_attr(NodeId id, std::string_view name, AttrValue value) {
  MutexLock lock(impl_->mu);
  MR_TRY(check_mutable(id));
  Node& node = mutable_node(id);
  MR_TRY(check_not_frozen(node, impl_->frozen));
  auto refuse = [&](const Status& status) {
    return with_node(status, node.op_name(), node.name(), node.origin());
  };
  AttrMap attrs = node.body().attrs;
  attrs.set(name, std::move(value));
  if (!node.op().unknown) {
    if (Status status = check_attrs(node.op(), attrs); !status.ok()) return refuse(status);
    Result<std::vector<DType>> input_types = expand_types(node.op().inputs, attrs);
    if (!input_types.ok()) return refuse(input_types.status());
    Result<std::vector<DType>> output_types = expand_types(node.op().outputs, attrs);
    if (!output_types.ok()) return refuse(output_types.status());
    if (*input_types != node.body().input_types || *output_types != node.body().output_types) {
      return refuse(invalid_argument("attr '", name, "' cannot change any more: it decides types"));
    }
    if (Status status = check_same_facts(node, attrs); !status.ok()) {
      return refuse(status.with_prefix(str_cat("attr '", name, "' cannot change any more")));
    }
  }
  if (node.op().traits.constant) impl_->retired.push_back(std::move(node.body().attrs));
  node.body().attrs = std::move(attrs);
  return ok_status();
}

bool Graph::depends_on(NodeId id, NodeId target) const {
  std::vector<bool> seen(static_cast<size_t>(num_nodes()));
  std::vector<NodeId> stack = {id};
  while (!stack.empty()) {
    const NodeId at = stack.back();
    stack.pop_back();
    if (at == target) return true;
    if (seen[static_cast<size_t>(at)]) continue;
    seen[static_cast<size_t>(at)] = true;
    const Node& n = node(at);
    const bool merge = n.op().traits.control_flow == ControlFlow::kMerge;
    for (Output input : n.inputs()) {
      const bool back_edge =
          merge && node(input.node).op().traits.control_flow == ControlFlow::kNextIteration;
      if (!back_edge) stack.push_back(input.node);
    }
    for (NodeId control : n.control_inputs()) stack.push_back(control);
  }
  return false;
}

Status Graph::add_control_input(NodeId id, NodeId source) {
  MutexLock lock(impl_->mu);
  MR_TRY(check_mutable(id));
  MR_TRY(check_mutable(source));
  Node& node = mutable_node(id);
  MR_TRY(check_not_frozen(node, impl_->frozen));
  auto& controls = node.control_inputs_;
  if (std::find(controls.begin(), controls.end(), source) != controls.end()) return ok_status();
  const bool forward = source >= id;
  if ((forward || impl_->has_forward_edges) && depends_on(source, id)) {
    return with_node(invalid_argument("a control input from \"", this->node(source).name(),
                                      "\" would close a cycle"),
                     node.op_name(), node.name(), node.origin());
  }
  impl_->has_forward_edges |= forward;
  controls.push_back(source);
  return ok_status();
}

Status Graph::merge_shape(Output output, const PartialShape& shape) {
  MutexLock lock(impl_->mu);
  MR_TRY(check_mutable(output.node));
  Node& node = mutable_node(output.node);
  if (output.index < 0 || output.index >= node.num_outputs()) {
    return invalid_argument(node.op_name(), " \"", node.name(), "\": no output ", output.index,
                            "; there are ", node.num_outputs());
  }
  PartialShape& known = node.body().facts[static_cast<size_t>(output.index)].shape;
  Result<PartialShape> both = known.merge(shape);
  if (!both.ok()) {
    return with_node(invalid_argument("output ", output.index, " has shape ", known,
                                      ", which is not compatible with ", shape),
                     node.op_name(), node.name(), node.origin());
  }
  known = std::move(both).value();
  return ok_status();
}

Status Graph::widen_locked(Node& node, std::span<const Output> more_inputs, AttrMap attrs)
    MR_REQUIRES(impl_->mu) {
  if (node.op().traits.functional == FunctionalOp::kNone) {
    return invalid_argument("only an op that runs functions can be widened");
  }
  MR_TRY(check_attrs(node.op(), attrs));
  auto body = std::make_unique<Node::Body>();
  const Node::Body& before = node.body();
  body->inputs = before.inputs;
  body->inputs.insert(body->inputs.end(), more_inputs.begin(), more_inputs.end());
  MR_TRY_ASSIGN(body->input_types, expand_types(node.op().inputs, attrs));
  MR_TRY_ASSIGN(body->output_types, expand_types(node.op().outputs, attrs));
  if (body->input_types.size() != body->inputs.size()) {
    return invalid_argument("expected ", body->input_types.size(), " inputs, got ",
                            body->inputs.size());
  }
  for (size_t i = 0; i < body->inputs.size(); ++i) {
    MR_TRY(check_mutable(body->inputs[i].node));
    DType type = output_type(body->inputs[i]);
    if (!fits(type, body->input_types[i])) {
      return invalid_argument("input ", i, " (\"", output_name(body->inputs[i]), "\") is ", type,
                              ", expected ", body->input_types[i]);
    }
    impl_->has_forward_edges |= body->inputs[i].node >= node.id();
  }
  for (size_t i = 0; i < before.output_types.size(); ++i) {
    if (i >= body->output_types.size() || body->output_types[i] != before.output_types[i]) {
      return invalid_argument("output ", i, " is ", before.output_types[i],
                              " and has to stay that");
    }
  }
  body->attrs = std::move(attrs);
  MR_TRY_ASSIGN(body->facts, infer_node(node.op(), *body, body->attrs));
  for (size_t i = 0; i < before.facts.size(); ++i) body->facts[i] = before.facts[i];
  impl_->former.emplace_back(node.body_.exchange(body.release(), std::memory_order_acq_rel));
  revision_.fetch_add(1, std::memory_order_acq_rel);
  return ok_status();
}

Status Graph::widen(NodeId id, std::span<const Output> more_inputs, AttrMap attrs) {
  MutexLock lock(impl_->mu);
  MR_TRY(check_mutable(id));
  Node& node = mutable_node(id);
  Status status = widen_locked(node, more_inputs, std::move(attrs));
  return status.ok() ? status : with_node(status, node.op_name(), node.name(), node.origin());
}

Status Graph::set_argument_facts(NodeId id, TensorFacts facts) {
  MutexLock lock(impl_->mu);
  MR_TRY(check_mutable(id));
  Node& node = mutable_node(id);
  if (!node.op().traits.argument) {
    return invalid_argument(node.op_name(), " \"", node.name(), "\": expected a parameter");
  }
  node.body().facts[0] = std::move(facts);
  return ok_status();
}

Ref<FunctionLibrary> Graph::shared_functions() const { return Ref<FunctionLibrary>(functions_); }

void Graph::freeze(int count) {
  MutexLock lock(impl_->mu);
  impl_->frozen = std::max(impl_->frozen, std::min(count, num_nodes()));
}

std::string Graph::unique_name(std::string_view base) {
  MutexLock lock(impl_->mu);
  std::string name(base);
  auto taken = [this, &name]() MR_NO_THREAD_SAFETY_ANALYSIS {  // called with the lock held
    return impl_->names.contains(name) || impl_->reserved.contains(name);
  };
  if (taken()) {
    int64_t& suffix = impl_->next_suffix.try_emplace(std::string(base), 1).first->second;
    do {
      name.resize(base.size());
      name += str_cat("_", suffix++);
    } while (taken());
  }
  impl_->reserved.insert(name);
  return name;
}

Result<TensorName> parse_tensor_name(std::string_view text) {
  TensorName out;
  auto malformed = [text] {
    return invalid_argument("not the name of a tensor: \"", text.substr(0, 200),
                            "\"; expected \"node\", \"node:0\" or \"^node\"");
  };
  std::string_view name = text;
  if (name.starts_with('^')) {
    name.remove_prefix(1);
    out.index = -1;
  } else if (const size_t colon = name.rfind(':'); colon != std::string_view::npos) {
    const std::string_view digits = name.substr(colon + 1);
    const auto [end, code] =
        std::from_chars(digits.data(), digits.data() + digits.size(), out.index);
    const bool leading_zero = digits.size() > 1 && digits[0] == '0';
    if (digits.empty() || digits[0] == '-' || leading_zero || code != std::errc() ||
        end != digits.data() + digits.size()) {
      return malformed();
    }
    name = name.substr(0, colon);
  }
  if (!is_any_node_name(name)) return malformed();
  out.node = name;
  return out;
}

bool is_valid_node_name(std::string_view name) {
  return !name.empty() && (is_letter_or_digit(name[0]) || name[0] == '.') && all_name_chars(name);
}

bool is_valid_scope_name(std::string_view name) { return all_name_chars(name); }

}  // namespace millrace
