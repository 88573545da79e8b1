#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>

#include "python/src/arguments.h"
#include "python/src/array.h"
#include "python/src/calls.h"
#include "python/src/eager_tensor.h"
#include "python/src/elements.h"
#include "python/src/origin.h"
#include "python/src/scope.h"
#include "python/src/status.h"

// Calls of ops that become operations of a graph: values become tensors, attributes are worked out,
// the outputs come back in the form the op's function returns.

namespace millrace::python {

namespace {

NodeId add_constant(PyGraph& graph, Tensor value, std::string name) {
  const DType dtype = value.dtype();
  return graph.add("Const", std::move(name), {},
                   {{"value", AttrValue(std::move(value))}, {"dtype", dtype}});
}

// The arguments of a call that becomes an operation.
class GraphArguments final : public Arguments {
 public:
  GraphArguments(const PyOp& op, PyGraph& graph, std::string name, nb::handle arguments)
      : Arguments(op, std::move(name), arguments), graph_(graph) {}

  NodeId add() { return graph_.add(op_.name, name_, std::move(inputs_), std::move(attrs_)); }

 private:
  bool is_tensor(nb::handle value) const override { return python::is_tensor(value); }
  DType type_of(nb::handle tensor) const override { return python::type_of(tensor); }

  nb::object make_constant(const ArgDef& arg, Tensor value) override {
    const NodeId id = add_constant(graph_, std::move(value),
                                   graph_.graph().unique_name(str_cat(name_, "/", arg.name)));
    return graph_.tensor({id, 0});
  }

  nb::object convert_value(const ArgDef& arg, nb::handle value, DType want, DType prefer) override {
    if (is_eager_tensor(value)) {
      PyGraph& root = graph_.root();
      if (root.captures_values()) return root.tensor(root.capture_value(value));
      return make_constant(arg, unwrap(eager_context().to_host(eager_tensor(value))));
    }
    DefaultGraph open(graph_.python());
    ScopeGuard scope(graph_, name_ + "/");
    return converted(arg, value, want, prefer);
  }

  std::string describe(nb::handle value) const override {
    if (!is_tensor(value)) return nb::cast<std::string>(nb::repr(value));
    const Output output = output_of(value);
    const Graph& graph = graph_of(value).graph();
    return str_cat("'", graph.output_name(output), "' (", type_label(graph.output_type(output)),
                   ", shape ", graph.facts(output).shape, ")");
  }

  void push(const ArgDef& arg, nb::handle tensor) override {
    if (!can_import(graph_, tensor)) raise_other_graph(tensor);
    const Output output = import_tensor(graph_, tensor);
    if (arg.is_ref && !is_ref(graph_.graph().output_type(output))) {
      raise_type_error(
          str_cat("'", op_.name, "' Op requires that input '", arg.name, "' be a mutable tensor"));
    }
    inputs_.push_back(output);
    read_.emplace_back(&arg, nb::borrow(tensor));
  }
  void swap_inputs() override { std::swap(inputs_[0], inputs_[1]); }

  // A tensor and another argument are of graphs that have nothing to do with each other.
  [[noreturn]] void raise_other_graph(nb::handle tensor) const {
    nb::object message = library("millrace.graph.other_graph", "other_graph_message")(
        tensor, graph_.python(), arguments_);
    PyErr_SetObject(library("millrace.core.errors", "OutOfScopeError").ptr(), message.ptr());
    throw nb::python_error();
  }

  PyGraph& graph_;
  std::vector<Output> inputs_;
};

// The graph that an operation on these arguments belongs to: the default one, unless a tensor is of
// another graph that is none of those around it.
PyGraph& graph_for(PyGraph& current, nb::handle value, PyGraph* found, int depth = 0) {
  if (is_tensor(value)) {
    PyGraph& own = graph_of(value);
    // Nothing can be added to a finished body: import_tensor() says what to do, or finds its twin.
    PyGraph& here = found != nullptr ? *found : current;
    if (!own.detached() && !own.is_ancestor_of(here) && !here.captures(own)) return own;
  } else if (depth == 0 && (PyList_Check(value.ptr()) || PyTuple_Check(value.ptr()))) {
    for (nb::handle item : value) {
      PyGraph& own = graph_for(current, item, found, 1);
      if (&own != (found != nullptr ? found : &current)) return own;
    }
  }
  return found != nullptr ? *found : current;
}

nb::object results(PyOp& op, PyGraph& graph, NodeId id) {
  nb::object operation = graph.operation(id);
  return shape_results(op, graph.graph().node(id).attrs(), operation,
                       [&](int i) { return graph.tensor({id, i}); });
}

nb::object add_operation(PyOp& op, nb::handle name, nb::handle arguments, bool second_first) {
  check_arguments(op, arguments);
  const size_t num_inputs = op.def->inputs.size();
  const auto argument = [&](size_t i) {
    return nb::handle(PyTuple_GET_ITEM(arguments.ptr(), static_cast<Py_ssize_t>(i)));
  };
  PyGraph* graph = &Context::here().default_graph();
  for (size_t i = 0; i < num_inputs; ++i) {
    PyGraph& wanted = graph_for(*graph, argument(i), nullptr);
    if (&wanted != graph) {
      graph = &wanted;
      break;
    }
  }
  std::string own_name = op.def->name;
  if (PyBytes_Check(name.ptr())) {
    own_name = nb::cast<nb::bytes>(name).c_str();
  } else if (!name.is_none()) {
    own_name = nb::cast<std::string>(nb::str(name));
  }
  if (own_name[0] == '_') own_name.erase(0, own_name.find_first_not_of('_'));
  GraphArguments made(op, *graph, full_name(*graph, own_name), arguments);
  made.read(op, second_first);
  const NodeId id = made.add();
  return results(op, *graph, id);
}

class GraphMode final : public Mode {
 public:
  nb::object call(PyOp& op, nb::handle name, nb::handle arguments, bool second_first) override {
    return add_operation(op, name, arguments, second_first);
  }

  nb::object constant(nb::handle array, nb::handle dtype, nb::handle name) override {
    PyGraph& graph = Context::here().default_graph();
    const DType expected = dtype.is_none() ? DType::kInvalid : dtype_from_object(dtype);
    Tensor value;
    if (!tensor_from_scalar(array, expected, value))
      value = tensor_from_array(array, expected, Sharing::kCopy);
    const NodeId id =
        add_constant(graph, std::move(value), full_name(graph, nb::cast<std::string>(name)));
    return graph.tensor({id, 0});
  }

  nb::object open_scope(nb::handle name, nb::handle values) override {
    const Context& here = Context::here();
    const int given = PyObject_IsTrue(values.ptr());
    if (given < 0) throw nb::python_error();
    PyGraph* graph = &here.default_graph();
    if (given != 0) {
      graph =
          &nb::cast<PyGraph&>(library("millrace.graph.default_graph", "graph_of_values")(values));
    }
    return nb::cast(OpenScope(*graph, name, !graph->python().is(here.innermost_graph())));
  }
};

}  // namespace

Mode& graph_mode() {
  static GraphMode mode;
  return mode;
}

}  // namespace millrace::python
