#include "python/src/elements.h"

#include "python/src/array.h"
#include "python/src/graph.h"
#include "python/src/status.h"

namespace millrace::python {

namespace {

// Interned names of attributes.
#define MR_NAME(text)                                               \
  ([]() -> PyObject* {                                              \
    static PyObject* const name = PyUnicode_InternFromString(text); \
    return name;                                                    \
  }())

nb::handle operation_class() { return library("millrace.graph.operation", "Operation"); }
// The class once it has its operators.
nb::handle tensor_class() { return library("millrace.ops.overloads", "SymbolicTensor"); }

nb::object get(nb::handle object, PyObject* name) {
  PyObject* value = PyObject_GetAttr(object.ptr(), name);
  if (value == nullptr) throw nb::python_error();
  return nb::steal(value);
}

int64_t get_int(nb::handle object, PyObject* name) {
  nb::object value = get(object, name);
  return PyLong_AsLongLong(value.ptr());
}

nb::object make(nb::handle cls) {
  auto* type = reinterpret_cast<PyTypeObject*>(cls.ptr());
  PyObject* object = type->tp_alloc(type, 0);
  if (object == nullptr) throw nb::python_error();
  return nb::steal(object);
}

void set(nb::handle object, PyObject* name, nb::handle value) {
  if (PyObject_SetAttr(object.ptr(), name, value.ptr()) != 0) throw nb::python_error();
}

}  // namespace

nb::object PyGraph::operation(NodeId id) {
  auto* list = reinterpret_cast<PyListObject*>(operations_);
  while (PyList_GET_SIZE(list) <= id) {
    if (PyList_Append(operations_, Py_None) != 0) throw nb::python_error();
  }
  PyObject* known = PyList_GET_ITEM(list, id);
  if (known != Py_None) return nb::borrow(known);
  const Node& node = graph_->node(id);
  nb::object op = make(operation_class());
  nb::object number = nb::int_(id);
  nb::list outputs;
  set(op, MR_NAME("graph"), self_);
  set(op, MR_NAME("_id"), number);
  for (int i = 0; i < node.num_outputs(); ++i) {
    nb::object tensor = make(tensor_class());
    set(tensor, MR_NAME("op"), op);
    set(tensor, MR_NAME("graph"), self_);
    set(tensor, MR_NAME("_id"), number);
    set(tensor, MR_NAME("_index"), nb::int_(i));
    set(tensor, MR_NAME("dtype"), dtype_object(node.output_type(i)));
    outputs.append(tensor);
  }
  set(op, MR_NAME("_outputs"), outputs);
  if (PyList_SetItem(operations_, id, op.inc_ref().ptr()) != 0) throw nb::python_error();
  return op;
}

nb::object PyGraph::tensor(Output output) {
  nb::object op = operation(output.node);
  nb::object outputs = get(op, MR_NAME("_outputs"));
  // Nodes that gradients widened have more outputs than when their Operation was made.
  for (auto i = PyList_GET_SIZE(outputs.ptr()); i < graph_->node(output.node).num_outputs(); ++i) {
    nb::object tensor = make(tensor_class());
    set(tensor, MR_NAME("op"), op);
    set(tensor, MR_NAME("graph"), self_);
    set(tensor, MR_NAME("_id"), nb::int_(output.node));
    set(tensor, MR_NAME("_index"), nb::int_(i));
    set(tensor, MR_NAME("dtype"),
        dtype_object(graph_->node(output.node).output_type(static_cast<int>(i))));
    if (PyList_Append(outputs.ptr(), tensor.ptr()) != 0) throw nb::python_error();
  }
  return nb::borrow(PyList_GET_ITEM(outputs.ptr(), output.index));
}

bool is_tensor(nb::handle object) {
  return reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())) == tensor_class().ptr();
}
bool is_operation(nb::handle object) {
  return reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())) == operation_class().ptr();
}
PyGraph& graph_of(nb::handle object) { return nb::cast<PyGraph&>(get(object, MR_NAME("graph"))); }
Output output_of(nb::handle tensor) {
  return {static_cast<NodeId>(get_int(tensor, MR_NAME("_id"))),
          static_cast<int32_t>(get_int(tensor, MR_NAME("_index")))};
}
NodeId node_of(nb::handle operation) {
  return static_cast<NodeId>(get_int(operation, MR_NAME("_id")));
}

namespace {

// The tensor of `graph`, or of a graph around it, that stands for one of a body that is being
// differentiated; invalid where there is none.
Expr twin(PyGraph& graph, const PyGraph& own, Output output) {
  const Node& node = own.graph().node(output.node);
  for (PyGraph* g = &graph; g != nullptr; g = g->outer()) {
    if (!g->stands_for_body) continue;
    const NodeId id = g->graph().find(node.name());
    if (id < 0) continue;
    const Node& other = g->graph().node(id);
    if (other.op_name() == node.op_name() && output.index < other.num_outputs() &&
        other.output_type(output.index) == node.output_type(output.index)) {
      return g->expr({id, output.index});
    }
  }
  return {};
}

}  // namespace

bool can_import(PyGraph& graph, nb::handle tensor) {
  PyGraph& own = graph_of(tensor);
  if (own.is_ancestor_of(graph)) return true;
  return own.detached() && twin(graph, own, output_of(tensor)).valid();
}

Expr visible_expr(PyGraph& graph, nb::handle tensor) {
  PyGraph& own = graph_of(tensor);
  const Output output = output_of(tensor);
  Expr source;
  if (own.is_ancestor_of(graph)) {
    source = own.expr(output);
  } else if (own.detached()) {
    source = twin(graph, own, output);
  }
  if (!source.valid()) {
    nb::object message =
        library("millrace.graph.other_graph", "other_graph_message")(tensor, graph.python());
    PyErr_SetObject(PyExc_ValueError, message.ptr());
    throw nb::python_error();
  }
  return source;
}

Output import_tensor(PyGraph& graph, nb::handle tensor) {
  if (&graph_of(tensor) == &graph) return output_of(tensor);
  const Expr inner = graph.builder().import(visible_expr(graph, tensor));
  const Status status = graph.builder().take_status();
  if (!status.ok()) raise_value_error(status);
  return GraphBuilder::output(inner);
}

}  // namespace millrace::python
