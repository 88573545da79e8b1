#include "python/src/calls.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>

#include "millrace/graph/op_registry.h"
#include "python/src/elements.h"
#include "python/src/scope.h"
#include "python/src/status.h"

// Calls of ops. What they come to is up to the thread's mode.

namespace millrace::python {

PyOp::PyOp(const OpDef& op) : def(&op) {
  const auto is_inferred = [&](const AttrDef& attr) {
    return std::any_of(op.inputs.begin(), op.inputs.end(), [&](const ArgDef& arg) {
      return arg.type_attr == attr.name || arg.type_list_attr == attr.name ||
             arg.number_attr == attr.name;
    });
  };
  for (const bool required : {true, false}) {
    for (const AttrDef& attr : op.attrs) {
      if (!is_inferred(attr) && attr.default_value.empty() == required) attrs.push_back(&attr);
    }
  }
  const auto is_list = [](const ArgDef& arg) { return arg.is_list() || arg.is_ref; };
  plain = op.outputs.size() <= 1 && std::none_of(op.inputs.begin(), op.inputs.end(), is_list);
}

namespace {

nb::object call(PyOp& op, nb::handle name, nb::handle arguments, bool second_first) {
  return Context::here().mode().call(op, name, arguments, second_first);
}

// Graph.create_op: everything given, as TensorFlow's client libraries write nodes.
nb::object create(PyGraph& graph, const std::string& op, nb::handle inputs, const std::string& name,
                  const nb::dict& attrs) {
  const OpDef* def = graph.graph().registry().find(op);
  AttrMap given;
  for (auto [key, value] : attrs) {
    const std::string attr_name = nb::cast<std::string>(key);
    given.set(attr_name, attr_from_python(op, def, attr_name, value));
  }
  std::vector<Output> outputs;
  std::vector<DType> types;
  for (nb::handle input : inputs) {
    outputs.push_back(import_tensor(graph, input));
    types.push_back(graph.graph().output_type(outputs.back()));
  }
  if (def != nullptr) {
    const Status status = infer_type_attrs(*def, types, given);
    if (!status.ok()) raise_value_error(status);
  }
  return graph.operation(graph.add(op, name, std::move(outputs), std::move(given)));
}

}  // namespace

void bind_calls(nb::module_& m) {
  nb::class_<PyOp>(m, "Op").def("__call__", &call, nb::arg("name").none(), nb::arg("arguments"),
                                nb::arg("second_first") = false);
  m.def("op",
        [](std::string_view name) { return PyOp(*unwrap(OpRegistry::global().lookup(name))); });
  m.def("create_op", &create);
  m.def("full_name", [](PyGraph& graph, std::string_view name) { return full_name(graph, name); });
  // An array of the right dtype already; graph/convert.py makes it.
  m.def(
      "constant",
      [](nb::handle array, nb::handle dtype, nb::handle name) {
        return Context::here().mode().constant(array, dtype, name);
      },
      nb::arg("array"), nb::arg("dtype").none(), nb::arg("name"));
  nb::class_<OpenScope>(m, "OpenScope")
      .def_prop_ro("name", &OpenScope::name)
      .def("close", &OpenScope::close);
  m.def(
      "open_scope",
      [](nb::handle name, nb::handle values) {
        return Context::here().mode().open_scope(name, values);
      },
      nb::arg("name").none(), nb::arg("values").none());
}

}  // namespace millrace::python
