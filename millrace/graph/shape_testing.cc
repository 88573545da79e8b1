#include "millrace/graph/shape_testing.h"

#include <charconv>

#include "millrace/graph/graph_builder.h"

namespace millrace {

namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

Result<std::optional<int64_t>> parse_element(std::string_view text) {
  if (text == "?") return std::optional<int64_t>();
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) {
    return invalid_argument("not an integer or '?': '", text, "'");
  }
  return std::optional<int64_t>(value);
}

Result<PartialValue> parse_value(std::string_view text) {
  PartialValue value;
  value.is_scalar = !text.starts_with('[');
  if (!value.is_scalar) {
    if (!text.ends_with(']')) return invalid_argument("no closing ']' in '", text, "'");
    text = text.substr(1, text.size() - 2);
  }
  for (std::string_view part : split(text, ',')) {
    MR_TRY_ASSIGN(std::optional<int64_t> element, parse_element(part));
    value.elements.push_back(element);
  }
  if (value.is_scalar && value.elements.size() != 1)
    return invalid_argument("no value: '", text, "'");
  return value;
}

Result<TensorFacts> parse_facts(std::string_view text) {
  TensorFacts facts;
  if (!text.starts_with('=')) {
    MR_TRY_ASSIGN(facts.shape, PartialShape::parse(text));
    return facts;
  }
  MR_TRY_ASSIGN(facts.value, parse_value(text.substr(1)));
  facts.shape = facts.value->is_scalar
                    ? PartialShape::scalar()
                    : PartialShape{static_cast<int64_t>(facts.value->elements.size())};
  return facts;
}

// A type that the attribute allows, for a test that does not care.
DType any_allowed(const AttrDef& attr) {
  if (const DType* type = attr.default_value.get<DType>()) return *type;
  if (attr.allowed_types.empty()) return DType::kFloat;
  for (DType t : {DType::kFloat, DType::kInt32}) {
    if (attr.allowed_types.contains(t)) return t;
  }
  for (int n = 1; n < kNumDTypes; ++n) {
    if (attr.allowed_types.contains(static_cast<DType>(n))) return static_cast<DType>(n);
  }
  return DType::kInvalid;
}

Result<std::vector<TensorFacts>> run(const OpRegistry& registry, std::string_view name,
                                     AttrMap& attrs, std::string_view text,
                                     const TestConstants& constants) {
  MR_TRY_ASSIGN(const OpDef* op, registry.lookup(name));
  std::vector<TensorFacts> inputs;
  for (std::string_view part : split(text, ';')) {
    MR_TRY_ASSIGN(TensorFacts facts, parse_facts(part));
    inputs.push_back(std::move(facts));
  }
  for (const auto& [i, tensor] : constants) {
    if (i < 0 || static_cast<size_t>(i) >= inputs.size()) return invalid_argument("no input ", i);
    TensorFacts& facts = inputs[static_cast<size_t>(i)];
    // What a Const node would say of it.
    OpDef constant;
    constant.traits.constant = true;
    const AttrMap value = {{"value", tensor}};
    ShapeContext context(constant, value, {}, {}, {tensor.dtype()});
    MR_TRY_ASSIGN(std::vector<TensorFacts> out, infer(context));
    facts = std::move(out[0]);
    facts.constant = &tensor;
    // The constant decides its argument's type, when all before it are single tensors.
    for (int a = 0; a <= i && static_cast<size_t>(a) < op->inputs.size(); ++a) {
      const ArgDef& arg = op->inputs[static_cast<size_t>(a)];
      if (arg.is_list()) break;
      if (a == i && !arg.type_attr.empty() && attrs.find(arg.type_attr) == nullptr) {
        attrs.set(arg.type_attr, tensor.dtype());
      }
    }
  }
  for (const AttrDef& attr : op->attrs) {
    if (attr.type == "type" && attrs.find(attr.name) == nullptr)
      attrs.set(attr.name, any_allowed(attr));
  }
  const std::vector<DType> types(inputs.size(), DType::kFloat);
  MR_TRY(infer_type_attrs(*op, types, attrs));
  MR_TRY(check_attrs(*op, attrs));
  MR_TRY_ASSIGN(std::vector<DType> input_types, expand_types(op->inputs, attrs));
  if (input_types.size() != inputs.size()) {
    return invalid_argument("expected ", input_types.size(), " inputs, got ", inputs.size());
  }
  MR_TRY_ASSIGN(std::vector<DType> output_types, expand_types(op->outputs, attrs));
  std::vector<const TensorFacts*> pointers;
  for (const TensorFacts& facts : inputs) pointers.push_back(&facts);
  ShapeContext context(*op, attrs, std::move(pointers), std::move(input_types),
                       std::move(output_types));
  return infer(context);
}

}  // namespace

Result<std::string> infer_shapes(const OpRegistry& registry, std::string_view op, AttrMap attrs,
                                 std::string_view inputs, const TestConstants& constants) {
  MR_TRY_ASSIGN(const std::vector<TensorFacts> outputs,
                run(registry, op, attrs, inputs, constants));
  std::vector<std::string> shapes;
  for (const TensorFacts& facts : outputs) shapes.push_back(facts.shape.to_string());
  return str_join(shapes, ";");
}

Result<std::string> infer_values(const OpRegistry& registry, std::string_view op, AttrMap attrs,
                                 std::string_view inputs, const TestConstants& constants) {
  MR_TRY_ASSIGN(const std::vector<TensorFacts> outputs,
                run(registry, op, attrs, inputs, constants));
  std::vector<std::string> values;
  for (const TensorFacts& facts : outputs) {
    if (!facts.value) {
      values.push_back("?");
      continue;
    }
    std::vector<std::string> elements;
    for (const auto& e : facts.value->elements) elements.push_back(e ? str_cat(*e) : "?");
    const std::string joined = str_join(elements, ",");
    values.push_back(facts.value->is_scalar ? joined : str_cat("[", joined, "]"));
  }
  return str_join(values, ";");
}

}  // namespace millrace
