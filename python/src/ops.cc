#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "millrace/graph/graph_def.h"
#include "millrace/graph/op_registry.h"
#include "millrace/ops/op_library.h"
#include "proto/op_def.pb.h"
#include "python/src/array.h"
#include "python/src/binding.h"
#include "python/src/graph.h"
#include "python/src/status.h"

// What there is to know about ops: for the code generator, and for programs that ask.

namespace millrace::python {

namespace {

nb::dict describe(const ArgDef& arg) {
  nb::dict out;
  out["name"] = arg.name;
  out["dtype"] = arg.dtype == DType::kInvalid ? std::string() : dtype_name(arg.dtype);
  out["type_attr"] = arg.type_attr;
  out["type_list_attr"] = arg.type_list_attr;
  out["number_attr"] = arg.number_attr;
  out["is_ref"] = arg.is_ref;
  out["doc"] = arg.doc;
  return out;
}

// A default as the code generator writes it: types by name; None for shapes and the like.
nb::object describe_default(const AttrValue& value) {
  if (const DType* type = value.get<DType>()) return nb::cast(dtype_name(*type));
  if (const auto* types = value.get<std::vector<DType>>()) {
    nb::list names;
    for (DType type : *types) names.append(dtype_name(type));
    return names;
  }
  const std::string_view kind = value.kind();
  const bool plain = kind != "shape" && kind != "tensor" && kind != "func" &&
                     !kind.ends_with("(shape)") && !kind.ends_with("(tensor)") &&
                     !kind.ends_with("(func)");
  return plain ? attr_to_python(value) : nb::none();
}

nb::dict describe(const AttrDef& attr) {
  nb::dict out;
  out["name"] = attr.name;
  out["type"] = attr.type;
  out["default"] = attr.default_value.empty() ? nb::none() : describe_default(attr.default_value);
  out["has_default"] = !attr.default_value.empty();
  nb::list types;
  for (int n = 1; n < kNumDTypes; ++n) {
    if (attr.allowed_types.contains(static_cast<DType>(n)))
      types.append(dtype_name(static_cast<DType>(n)));
  }
  out["allowed_types"] = types;
  out["allowed_strings"] = attr.allowed_strings;
  out["doc"] = attr.doc;
  return out;
}

nb::dict describe(const OpDef& op) {
  nb::dict out;
  out["name"] = op.name;
  out["doc"] = op.doc;
  const auto list = [](const auto& parts) {
    nb::list all;
    for (const auto& part : parts) all.append(describe(part));
    return all;
  };
  out["inputs"] = list(op.inputs);
  out["outputs"] = list(op.outputs);
  out["attrs"] = list(op.attrs);
  out["stateful"] = op.traits.stateful;
  out["deprecation"] = op.deprecation;
  return out;
}

}  // namespace

void bind_ops(nb::module_& m) {
  m.def("op_names", [] {
    std::vector<std::string> names;
    for (const OpDef* op : OpRegistry::global().list()) names.push_back(op->name);
    return names;
  });
  m.def("describe_op",
        [](std::string_view name) { return describe(*unwrap(OpRegistry::global().lookup(name))); });
  m.def("op_def", [](std::string_view name) {
    tensorflow::OpDef proto;
    op_def_to_proto(*unwrap(OpRegistry::global().lookup(name)), proto);
    const std::string bytes = proto.SerializeAsString();
    return nb::bytes(bytes.data(), bytes.size());
  });
  m.def("load_op_library", [](const std::string& path) { return unwrap(load_op_library(path)); });
}

}  // namespace millrace::python
