#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "millrace/graph/function.h"
#include "millrace/graph/message_conversion.h"
#include "proto/function.pb.h"

namespace millrace {
namespace {

using Names = std::unordered_set<std::string_view>;

Result<Function::BodyNode> read_body_node(const tensorflow::NodeDef& proto, ImportBudget& budget) {
  Function::BodyNode node;
  node.name = proto.name();
  node.op = proto.op();
  node.device = proto.device();
  node.inputs.assign(proto.input().begin(), proto.input().end());
  if (!is_valid_node_name(node.name)) {
    return invalid_argument("expected a name of letters, digits and _.-/>, found \"", node.name,
                            "\"");
  }
  if (node.op.empty()) return invalid_argument("expected an op, found none");
  MR_TRY_ASSIGN(node.attrs, attrs_from_proto(proto.attr(), budget));
  MR_TRY_ASSIGN(node.origin, take_origin(node.attrs));
  return node;
}

// "arg", "arg:0", "node:out", "node:out:0" or "^node" of names that exist.
Status check_reference(std::string_view text, const Names& args, const Names& nodes) {
  bool control = text.starts_with('^');
  if (control) text.remove_prefix(1);
  size_t colon = text.find(':');
  std::string_view name = text.substr(0, colon);
  bool is_arg = args.contains(name);
  if (!is_arg && !nodes.contains(name)) {
    return invalid_argument("expected an argument or a node of the body, found none named \"", name,
                            "\"");
  }
  if (control && colon != std::string_view::npos) {
    return invalid_argument("expected \"^node\", found a control input with an output");
  }
  if (!control && !is_arg && colon == std::string_view::npos) {
    return invalid_argument("expected \"node:output\" or \"node:output:0\", found only a node");
  }
  return ok_status();
}

Status check_inputs(const Function::BodyNode& node, const Names& args, const Names& nodes) {
  bool control = false;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const std::string& text = node.inputs[i];
    Status status = check_reference(text, args, nodes);
    if (status.ok() && control && !text.starts_with('^')) {
      status = invalid_argument(
          "expected only control inputs after the first control input, found a data input");
    }
    if (!status.ok())
      return status.with_prefix(str_cat("input ", i, " \"", text.substr(0, 256), "\""));
    control |= text.starts_with('^');
  }
  return ok_status();
}

Status read_returns(const tensorflow::FunctionDef& proto, const Names& args, const Names& nodes,
                    Function& function) {
  for (const ArgDef& output : function.signature.outputs) {
    auto it = proto.ret().find(output.name);
    if (it == proto.ret().end()) {
      return invalid_argument("result \"", output.name, "\": expected an entry in ret, found none");
    }
    Status status = it->second.starts_with('^')
                        ? invalid_argument("expected a tensor, found a control input")
                        : check_reference(it->second, args, nodes);
    if (!status.ok()) return status.with_prefix(str_cat("result \"", output.name, "\""));
    function.returns.emplace_back(output.name, it->second);
  }
  if (proto.ret().size() > function.returns.size()) {
    for (const auto& entry : proto.ret()) {
      bool known = std::any_of(function.returns.begin(), function.returns.end(),
                               [&](const auto& r) { return r.first == entry.first; });
      if (!known) {
        return invalid_argument("ret \"", entry.first,
                                "\": expected an output of the signature, found none");
      }
    }
  }
  for (const auto& [name, node] : proto.control_ret()) {
    if (!nodes.contains(node)) {
      return invalid_argument("control result \"", name,
                              "\": expected a node of the body, found \"", node, "\"");
    }
    function.control_returns.emplace_back(name, node);
  }
  // In the signature's order; those it does not name come last, by name.
  std::unordered_map<std::string_view, size_t> order;
  for (const std::string& name : proto.signature().control_output())
    order.emplace(name, order.size());
  auto rank = [&](const auto& r) {
    auto it = order.find(r.first);
    return std::pair<size_t, std::string_view>(it == order.end() ? order.size() : it->second,
                                               r.first);
  };
  std::sort(function.control_returns.begin(), function.control_returns.end(),
            [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  return ok_status();
}

Status read_arg_attrs(const tensorflow::FunctionDef& proto, ImportBudget& budget,
                      Function& function) {
  for (const auto& [index, attrs] : proto.arg_attr()) {
    if (index >= function.signature.inputs.size()) {
      return invalid_argument("arg_attr ", index, ": expected a number below ",
                              function.signature.inputs.size());
    }
    MR_TRY_ASSIGN(AttrMap map, attrs_from_proto(attrs.attr(), budget));
    for (const auto& [name, value] : map) {
      if (!name.starts_with('_')) {
        return invalid_argument("arg_attr ", index,
                                ": expected names that begin with '_', found \"", name, "\"");
      }
    }
    function.arg_attrs.emplace_back(static_cast<int>(index), std::move(map));
  }
  std::sort(function.arg_attrs.begin(), function.arg_attrs.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  return ok_status();
}

Status read_function(const tensorflow::FunctionDef& proto, ImportBudget& budget,
                     Function& function) {
  Names args, nodes;
  for (const ArgDef& arg : function.signature.inputs) args.insert(arg.name);
  function.nodes.reserve(static_cast<size_t>(proto.node_def_size()));
  for (const auto& node_proto : proto.node_def()) {
    Result<Function::BodyNode> node = read_body_node(node_proto, budget);
    if (node.ok() && (args.contains(node->name) || !nodes.insert(node_proto.name()).second)) {
      node =
          invalid_argument("expected a name of its own, found two arguments or nodes of that name");
    }
    if (!node.ok()) {
      return node.status().with_prefix(str_cat(node_proto.op(), " \"", node_proto.name(), "\""));
    }
    function.nodes.push_back(*std::move(node));
  }
  for (const Function::BodyNode& node : function.nodes) {
    Status status = check_inputs(node, args, nodes);
    if (!status.ok()) return status.with_prefix(str_cat(node.op, " \"", node.name, "\""));
  }
  MR_TRY(read_returns(proto, args, nodes, function));
  // TensorFlow says nothing of the shapes of no arguments, under a name all the same.
  AttrProtoMap attrs = proto.attr();
  for (const auto& [name, value] : proto.attr()) {
    if (name.starts_with('_') && value.value_case() == tensorflow::AttrValue::VALUE_NOT_SET) {
      attrs.erase(name);
    }
  }
  MR_TRY_ASSIGN(function.attrs, attrs_from_proto(attrs, budget));
  return read_arg_attrs(proto, budget, function);
}

}  // namespace

Result<Ref<Function>> function_from_proto(const tensorflow::FunctionDef& proto) {
  ImportBudget budget;
  return function_from_proto(proto, budget);
}

Result<Ref<Function>> function_from_proto(const tensorflow::FunctionDef& proto,
                                          ImportBudget& budget) {
  Ref<Function> function = make_ref<Function>();
  Result<OpDef> signature = op_def_from_proto(proto.signature(), budget);
  if (!signature.ok()) return signature.status().with_prefix("function signature");
  function->signature = *std::move(signature);
  Status status = read_function(proto, budget, *function);
  if (!status.ok()) {
    return status.with_prefix(str_cat("function \"", function->signature.name, "\""));
  }
  return function;
}

Status write_function_def(const Function& function, tensorflow::FunctionDef& proto) {
  proto.Clear();
  Status first_error;
  auto keep = [&](const Status& status) {
    if (first_error.ok()) first_error = status;
  };
  keep(write_op_def(function.signature, *proto.mutable_signature()));
  for (const Function::BodyNode& node : function.nodes) {
    auto& node_proto = *proto.add_node_def();
    node_proto.set_name(node.name);
    node_proto.set_op(node.op);
    node_proto.set_device(node.device);
    for (const std::string& input : node.inputs) node_proto.add_input(input);
    AttrMap attrs = node.attrs;
    put_origin(node.origin, attrs);
    keep(attrs_to_proto(attrs, *node_proto.mutable_attr()).with_prefix(node.name));
  }
  for (const auto& [name, source] : function.returns) (*proto.mutable_ret())[name] = source;
  for (const auto& [name, node] : function.control_returns) {
    (*proto.mutable_control_ret())[name] = node;
    proto.mutable_signature()->add_control_output(name);
  }
  keep(attrs_to_proto(function.attrs, *proto.mutable_attr()));
  for (const auto& [index, attrs] : function.arg_attrs) {
    auto& arg = (*proto.mutable_arg_attr())[static_cast<uint32_t>(index)];
    keep(attrs_to_proto(attrs, *arg.mutable_attr()));
  }
  return first_error.with_prefix(str_cat("function \"", function.signature.name, "\""));
}

void function_to_proto(const Function& function, tensorflow::FunctionDef& proto) {
  (void)write_function_def(function, proto);  // leaves out only what cannot be written
}

std::string deterministic_bytes(const google::protobuf::MessageLite& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

}  // namespace millrace
