#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "millrace/graph/graph_def.h"
#include "millrace/graph/message_conversion.h"
#include "proto/op_def.pb.h"

namespace millrace {
namespace {

bool is_attr_kind(std::string_view type) {
  if (type.starts_with("list(") && type.ends_with(")")) type = type.substr(5, type.size() - 6);
  for (std::string_view kind :
       {"string", "int", "float", "bool", "type", "shape", "tensor", "func"}) {
    if (type == kind) return true;
  }
  return false;
}

// An empty list has no kind of its own.
bool is_of_kind(const AttrValue& value, std::string_view type) {
  return value.kind() == type || (value.kind() == "list" && type.starts_with("list("));
}

Status read_allowed(const tensorflow::AttrValue& proto, AttrDef& attr) {
  for (int type : proto.list().type()) {
    DType dtype = static_cast<DType>(type);
    if (!is_valid(dtype)) return invalid_argument("allowed type ", dtype, " is not known");
    attr.allowed_types = attr.allowed_types | TypeSet{dtype};
  }
  attr.allowed_strings.assign(proto.list().s().begin(), proto.list().s().end());
  return ok_status();
}

Result<AttrDef> read_attr_def(const tensorflow::OpDef::AttrDef& proto, ImportBudget& budget) {
  AttrDef attr;
  attr.name = proto.name();
  attr.type = proto.type();
  attr.doc = proto.description();
  attr.has_minimum = proto.has_minimum();
  attr.minimum = proto.minimum();
  if (attr.name.empty()) return invalid_argument("expected a name, found none");
  if (!is_attr_kind(attr.type)) {
    return invalid_argument("expected a kind such as int or list(type), found \"", attr.type, "\"");
  }
  if (proto.has_default_value()) {
    MR_TRY_ASSIGN(attr.default_value, attr_from_proto(proto.default_value(), budget));
    if (!is_of_kind(attr.default_value, attr.type)) {
      return invalid_argument("default value: expected ", attr.type, ", found ",
                              attr.default_value.kind(), " ", attr.default_value);
    }
  }
  MR_TRY(read_allowed(proto.allowed_values(), attr));
  return attr;
}

// The attribute `name` must exist with this type.
Status check_arg_attr(const OpDef& op, std::string_view name, std::string_view type) {
  if (name.empty()) return ok_status();
  const AttrDef* attr = op.find_attr(name);
  if (attr == nullptr) {
    return invalid_argument("expected an attribute \"", name, "\" of type ", type, ", found none");
  }
  if (attr->type != type) {
    return invalid_argument("attribute \"", name, "\": expected type ", type, ", found ",
                            attr->type);
  }
  return ok_status();
}

Result<ArgDef> read_arg(const OpDef& op, const tensorflow::OpDef::ArgDef& proto) {
  ArgDef arg;
  arg.name = proto.name();
  arg.dtype = base_type(static_cast<DType>(proto.type()));
  arg.type_attr = proto.type_attr();
  arg.type_list_attr = proto.type_list_attr();
  arg.number_attr = proto.number_attr();
  arg.is_ref = proto.is_ref() || is_ref(static_cast<DType>(proto.type()));
  arg.doc = proto.description();
  if (arg.name.empty()) return invalid_argument("expected a name, found none");
  int ways = (arg.dtype != DType::kInvalid) + !arg.type_attr.empty() + !arg.type_list_attr.empty();
  if (ways != 1) {
    return invalid_argument("expected one of type, type_attr and type_list_attr, found ", ways);
  }
  if (arg.dtype != DType::kInvalid && !is_valid(arg.dtype)) {
    return invalid_argument("expected a known type, found ", arg.dtype);
  }
  if (!arg.type_list_attr.empty() && !arg.number_attr.empty()) {
    return invalid_argument("expected number_attr or type_list_attr, found both");
  }
  MR_TRY(check_arg_attr(op, arg.type_attr, "type"));
  MR_TRY(check_arg_attr(op, arg.type_list_attr, "list(type)"));
  MR_TRY(check_arg_attr(op, arg.number_attr, "int"));
  return arg;
}

template <class Protos>
Status read_args(const OpDef& op, const Protos& protos, std::string_view what,
                 std::vector<ArgDef>& args) {
  std::unordered_set<std::string_view> names;
  for (const auto& proto : protos) {
    Result<ArgDef> arg = read_arg(op, proto);
    if (arg.ok() && !names.insert(proto.name()).second) {
      arg = invalid_argument("the name is there twice");
    }
    if (!arg.ok()) {
      return arg.status().with_prefix(
          str_cat("op \"", op.name, "\": ", what, " \"", proto.name(), "\""));
    }
    args.push_back(*std::move(arg));
  }
  return ok_status();
}

void write_arg(const ArgDef& arg, tensorflow::OpDef::ArgDef& proto) {
  proto.set_name(arg.name);
  proto.set_description(arg.doc);
  proto.set_type(static_cast<tensorflow::DataType>(arg.dtype));
  proto.set_type_attr(arg.type_attr);
  proto.set_number_attr(arg.number_attr);
  proto.set_type_list_attr(arg.type_list_attr);
  proto.set_is_ref(arg.is_ref);
}

Status write_attr(const AttrDef& attr, tensorflow::OpDef::AttrDef& proto) {
  proto.set_name(attr.name);
  proto.set_type(attr.type);
  proto.set_description(attr.doc);
  proto.set_has_minimum(attr.has_minimum);
  proto.set_minimum(attr.minimum);
  for (int n = 1; n < kNumDTypes; ++n) {
    if (attr.allowed_types.contains(static_cast<DType>(n))) {
      proto.mutable_allowed_values()->mutable_list()->add_type(
          static_cast<tensorflow::DataType>(n));
    }
  }
  for (const std::string& text : attr.allowed_strings) {
    proto.mutable_allowed_values()->mutable_list()->add_s(text);
  }
  if (attr.default_value.empty()) return ok_status();
  Status status = attr_to_proto(attr.default_value, *proto.mutable_default_value());
  if (!status.ok()) proto.clear_default_value();
  return status.with_prefix(str_cat("attribute \"", attr.name, "\""));
}

}  // namespace

Result<OpDef> op_def_from_proto(const tensorflow::OpDef& proto) {
  ImportBudget budget;
  return op_def_from_proto(proto, budget);
}

Result<OpDef> op_def_from_proto(const tensorflow::OpDef& proto, ImportBudget& budget) {
  OpDef op;
  op.name = proto.name();
  if (op.name.empty()) return invalid_argument("op definition: expected a name, found none");
  op.doc = proto.summary();
  if (!proto.description().empty()) op.doc += "\n" + proto.description();
  std::unordered_set<std::string_view> names;
  for (const auto& attr_proto : proto.attr()) {
    Result<AttrDef> attr = read_attr_def(attr_proto, budget);
    if (attr.ok() && !names.insert(attr_proto.name()).second) {
      attr = invalid_argument("the name is there twice");
    }
    if (!attr.ok()) {
      return attr.status().with_prefix(
          str_cat("op \"", op.name, "\": attribute \"", attr_proto.name(), "\""));
    }
    op.attrs.push_back(*std::move(attr));
  }
  MR_TRY(read_args(op, proto.input_arg(), "input", op.inputs));
  MR_TRY(read_args(op, proto.output_arg(), "output", op.outputs));
  op.traits.aggregate = proto.is_aggregate();
  op.traits.stateful = proto.is_stateful();
  op.traits.commutative = proto.is_commutative();
  op.traits.allows_uninitialized_input = proto.allows_uninitialized_input();
  op.deprecated_since = proto.deprecation().version();
  op.deprecation = proto.deprecation().explanation();
  return op;
}

void op_def_to_proto(const OpDef& op, tensorflow::OpDef& proto) {
  (void)write_op_def(op, proto);  // leaves out only what cannot be written
}

Status write_op_def(const OpDef& op, tensorflow::OpDef& proto) {
  proto.Clear();
  Status first_error;
  proto.set_name(op.name);
  size_t line = op.doc.find('\n');
  proto.set_summary(op.doc.substr(0, line));
  if (line != std::string::npos) proto.set_description(op.doc.substr(line + 1));
  for (const ArgDef& arg : op.inputs) write_arg(arg, *proto.add_input_arg());
  for (const ArgDef& arg : op.outputs) write_arg(arg, *proto.add_output_arg());
  for (const AttrDef& attr : op.attrs) {
    Status status = write_attr(attr, *proto.add_attr());
    if (first_error.ok()) first_error = std::move(status);
  }
  proto.set_is_aggregate(op.traits.aggregate);
  proto.set_is_stateful(op.traits.stateful);
  proto.set_is_commutative(op.traits.commutative);
  proto.set_allows_uninitialized_input(op.traits.allows_uninitialized_input);
  if (op.deprecated_since != 0) {
    proto.mutable_deprecation()->set_version(op.deprecated_since);
    proto.mutable_deprecation()->set_explanation(op.deprecation);
  }
  return first_error.with_prefix(str_cat("op \"", op.name, "\""));
}

}  // namespace millrace
