#include "millrace/graph/graph_builder.h"

#include <algorithm>
#include <utility>

#include "millrace/graph/function.h"

namespace millrace {

namespace {

// The attribute that says how many tensors a list argument has.
const std::string& length_attr(const ArgDef& arg) {
  return arg.number_attr.empty() ? arg.type_list_attr : arg.number_attr;
}

// How many tensors `arg` has by what `attrs` hold; -1 when they do not say.
Result<int64_t> known_count(const ArgDef& arg, const AttrMap& attrs) {
  if (!arg.is_list()) return 1;
  if (attrs.find(length_attr(arg)) == nullptr) return -1;
  if (!arg.number_attr.empty()) return read_attr<int64_t>(attrs, arg.number_attr);
  MR_TRY_ASSIGN(const std::vector<DType> types,
                read_attr<std::vector<DType>>(attrs, arg.type_list_attr));
  return static_cast<int64_t>(types.size());
}

// How many of `total` tensors each input argument takes.
Result<std::vector<int64_t>> count_tensors(const OpDef& op, int64_t total, const AttrMap& attrs) {
  std::vector<int64_t> counts;
  int64_t rest = total;
  int64_t open = 0;  // arguments of a length that must follow from the rest
  const ArgDef* first_open = nullptr;
  for (const ArgDef& arg : op.inputs) {
    MR_TRY_ASSIGN(const int64_t count, known_count(arg, attrs));
    counts.push_back(count);
    if (count > total)
      return invalid_argument("expected ", count, " tensors for input '", arg.name, "', got ",
                              total);
    if (count >= 0) {
      rest -= count;
      continue;
    }
    if (first_open != nullptr && length_attr(*first_open) != length_attr(arg)) {
      return invalid_argument("cannot tell the lengths of inputs '", first_open->name, "' and '",
                              arg.name, "' apart: attr '", length_attr(arg), "' must be given");
    }
    first_open = &arg;
    ++open;
  }
  if (rest < 0 || (open == 0 && rest > 0)) {
    return invalid_argument("expected ", total - rest, " inputs, got ", total);
  }
  if (open > 0 && rest % open != 0) {
    return invalid_argument(open, " inputs have '", length_attr(*first_open),
                            "' tensors each, but there are ", rest, " for them");
  }
  for (int64_t& count : counts) {
    if (count < 0) count = rest / open;
  }
  return counts;
}

}  // namespace

Status infer_type_attrs(const OpDef& op, std::span<const DType> input_types, AttrMap& attrs) {
  MR_TRY_ASSIGN(const std::vector<int64_t> counts,
                count_tensors(op, static_cast<int64_t>(input_types.size()), attrs));
  // Which argument decided a type attribute; null where the caller gave it.
  std::vector<std::pair<std::string_view, const ArgDef*>> decided;
  for (size_t a = 0; a < op.inputs.size(); ++a) {
    const ArgDef& arg = op.inputs[a];
    const std::span<const DType> types = input_types.first(static_cast<size_t>(counts[a]));
    input_types = input_types.subspan(static_cast<size_t>(counts[a]));
    if (!arg.type_list_attr.empty()) {
      if (attrs.find(arg.type_list_attr) != nullptr) continue;
      std::vector<DType> bases;
      for (DType t : types) bases.push_back(base_type(t));
      attrs.set(arg.type_list_attr, std::move(bases));
      continue;
    }
    if (!arg.number_attr.empty() && attrs.find(arg.number_attr) == nullptr) {
      attrs.set(arg.number_attr, counts[a]);
    }
    if (arg.type_attr.empty()) continue;
    for (DType type : types) {
      const AttrValue* known = attrs.find(arg.type_attr);
      if (known == nullptr) {
        attrs.set(arg.type_attr, base_type(type));
        decided.emplace_back(arg.type_attr, &arg);
        continue;
      }
      const auto by = std::find_if(decided.begin(), decided.end(),
                                   [&](const auto& d) { return d.first == arg.type_attr; });
      if (by != decided.end() && *known != AttrValue(base_type(type))) {
        return invalid_argument("Input '", arg.name, "' has type ", base_type(type),
                                " that does not match type ", *known, " of argument '",
                                by->second->name, "'");
      }
    }
  }
  return ok_status();
}

std::string user_type_name(DType dtype) {
  switch (dtype) {
    case DType::kFloat:
      return "float32";
    case DType::kDouble:
      return "float64";
    case DType::kHalf:
      return "float16";
    default:
      return dtype_name(dtype);
  }
}

std::string describe_inputs(const Graph& graph, std::span<const Output> inputs) {
  constexpr size_t kMaxShown = 8;
  std::string line = "inputs: ";
  for (size_t i = 0; i < inputs.size() && i < kMaxShown; ++i) {
    if (i > 0) line += ", ";
    line += str_cat("'", graph.output_name(inputs[i]), "' ",
                    user_type_name(base_type(graph.output_type(inputs[i]))), " ",
                    graph.facts(inputs[i]).shape);
  }
  if (inputs.size() > kMaxShown) line += str_cat(", and ", inputs.size() - kMaxShown, " more");
  return line;
}

Result<NodeId> GraphBuilder::add(std::string_view op, std::string_view name,
                                 std::vector<Output> inputs, AttrMap attrs) {
  NodeSpec spec;
  spec.op = op;
  spec.name = graph_.unique_name(str_cat(context_.scope, name.empty() ? op : name));
  spec.control_inputs = context_.control_inputs;
  spec.device = context_.device;
  spec.origin = context_.origin;

  std::vector<DType> types;
  types.reserve(inputs.size());
  const int count = graph_.num_nodes();
  bool inputs_exist = true;
  for (Output input : inputs) {
    inputs_exist = inputs_exist && input.node >= 0 && input.node < count && input.index >= 0 &&
                   input.index < graph_.node(input.node).num_outputs();
    types.push_back(inputs_exist ? graph_.output_type(input) : DType::kInvalid);
  }
  Ref<Function> function;
  const OpDef* def = graph_.registry().find(op);
  if (def == nullptr) {
    function = graph_.functions().find(op);
    if (function) def = &function->signature;
  }
  // Unknown ops and inputs are left for the graph to report.
  if (def != nullptr && inputs_exist) {
    Status status = infer_type_attrs(*def, types, attrs);
    if (!status.ok()) {
      status = status.with_prefix(str_cat(op, " \"", spec.name, "\""));
      const std::string where = describe_origin(spec.origin);
      return where.empty() ? status : status.with_line(where);
    }
  }
  for (const auto& [attr_name, value] : context_.attrs) {
    if (attrs.find(attr_name) == nullptr) attrs.set(attr_name, value);
  }
  if (!context_.colocate_with.empty()) {
    std::vector<std::string> groups;
    if (attrs.find("_class") != nullptr) {
      MR_TRY_ASSIGN(groups, read_attr<std::vector<std::string>>(attrs, "_class"));
    }
    for (const std::string& node : context_.colocate_with) groups.push_back("loc:@" + node);
    std::sort(groups.begin(), groups.end());
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    attrs.set("_class", std::move(groups));
  }
  spec.inputs = inputs;
  spec.attrs = std::move(attrs);
  Result<NodeId> id = graph_.add(std::move(spec));
  if (id.ok() || inputs.empty() || !inputs_exist) return id;
  return id.status().with_line(describe_inputs(graph_, inputs));
}

std::vector<Expr> GraphBuilder::emit(std::string_view op, std::vector<Expr> inputs, AttrMap attrs) {
  if (!status_.ok()) return {};
  std::optional<std::vector<Output>> outputs = import_inputs(op, inputs);
  if (!outputs) return {};
  Result<NodeId> id = add(op, "", *std::move(outputs), std::move(attrs));
  if (!id.ok()) {
    fail(id.status());
    return {};
  }
  std::vector<Expr> made;
  for (int i = 0; i < graph_.node(*id).num_outputs(); ++i) made.push_back(expr({*id, i}));
  return made;
}

Expr GraphBuilder::import(Expr e) {
  if (e.builder() == this) return e;
  fail(invalid_argument(e.valid() ? "the tensor belongs to another graph" : "there is no tensor"));
  return Expr();
}

std::optional<std::vector<Output>> GraphBuilder::import_inputs(std::string_view op,
                                                               std::span<const Expr> inputs) {
  if (!status_.ok()) return std::nullopt;
  std::vector<Output> outputs;
  outputs.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Expr own = import(inputs[i]);
    if (!own.valid()) {
      status_ = status_.with_prefix(str_cat(op, ": input ", i));
      return std::nullopt;
    }
    outputs.push_back(output(own));
  }
  return outputs;
}

Expr GraphBuilder::constant(const Tensor& value) {
  const std::vector<Expr> made = emit("Const", {}, {{"value", value}, {"dtype", value.dtype()}});
  return made.empty() ? Expr() : made[0];
}

DType GraphBuilder::dtype(Expr e) const { return base_type(graph_.output_type(output(e))); }

PartialShape GraphBuilder::shape(Expr e) const { return graph_.facts(output(e)).shape; }

const Tensor* GraphBuilder::constant_value(Expr e) const {
  return graph_.facts(output(e)).constant;
}

void GraphBuilder::fail(Status error) {
  if (status_.ok()) status_ = std::move(error);
}

Status GraphBuilder::take_status() { return std::exchange(status_, Status()); }

}  // namespace millrace
