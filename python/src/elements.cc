#include "python/src/elements.h"

#include <structmember.h>

#include "python/src/array.h"
#include "python/src/graph.h"
#include "python/src/status.h"

namespace millrace::python {

namespace {

// Python's classes, and where their objects have the attributes of __slots__: read and written
// without a look at the class, for this is done several times for every node.
struct Classes {
  PyTypeObject* operation = nullptr;
  struct {
    Py_ssize_t graph, id, outputs;
  } of_operation = {};
  struct {
    Py_ssize_t op, graph, id, index, dtype;
  } of_tensor = {};
  PyTypeObject* tensor = nullptr;
};

Py_ssize_t slot_of(nb::handle cls, const char* name) {
  nb::object member = cls.attr(name);
  if (Py_TYPE(member.ptr()) != &PyMemberDescr_Type) throw nb::type_error("expected a slot");
  return reinterpret_cast<PyMemberDescrObject*>(member.ptr())->d_member->offset;
}

const Classes& classes() {
  static constinit Classes known;
  if (known.tensor != nullptr) [[likely]]
    return known;
  const nb::handle operation = library("millrace.graph.operation", "Operation");
  // The class once it has its operators.
  const nb::handle tensor = library("millrace.ops.overloads", "SymbolicTensor");
  known.operation = reinterpret_cast<PyTypeObject*>(operation.ptr());
  known.of_operation = {slot_of(operation, "graph"), slot_of(operation, "_id"),
                        slot_of(operation, "_outputs")};
  known.of_tensor = {slot_of(tensor, "op"), slot_of(tensor, "graph"), slot_of(tensor, "_id"),
                     slot_of(tensor, "_index"), slot_of(tensor, "dtype")};
  known.tensor = reinterpret_cast<PyTypeObject*>(tensor.ptr());
  return known;
}

PyObject*& slot(nb::handle object, Py_ssize_t offset) {
  return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object.ptr()) + offset);
}

// A borrowed attribute, which Python code may have deleted.
nb::handle get(nb::handle object, Py_ssize_t offset) {
  PyObject* value = slot(object, offset);
  if (value == nullptr) throw nb::attribute_error("the operation or tensor is not complete");
  return value;
}

nb::object make(PyTypeObject* type) {
  PyObject* object = type->tp_alloc(type, 0);
  if (object == nullptr) throw nb::python_error();
  return nb::steal(object);
}

// Of a new object.
void set(nb::handle object, Py_ssize_t offset, nb::handle value) {
  slot(object, offset) = value.inc_ref().ptr();
}

nb::object make_tensor(nb::handle op, nb::handle graph, nb::handle id, int index, DType dtype) {
  const Classes& known = classes();
  nb::object tensor = make(known.tensor);
  set(tensor, known.of_tensor.op, op);
  set(tensor, known.of_tensor.graph, graph);
  set(tensor, known.of_tensor.id, id);
  set(tensor, known.of_tensor.index, nb::int_(index));
  set(tensor, known.of_tensor.dtype, dtype_object(dtype));
  return tensor;
}

[[noreturn]] void raise_not(const char* expected, nb::handle object) {
  PyErr_Format(PyExc_TypeError, "expected %s of a graph, got %R of type '%s'", expected,
               object.ptr(), Py_TYPE(object.ptr())->tp_name);
  throw nb::python_error();
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
  const Classes& classes = python::classes();
  nb::object op = make(classes.operation);
  nb::object number = nb::int_(id);
  nb::object outputs = nb::steal(PyList_New(node.num_outputs()));
  if (!outputs.is_valid()) throw nb::python_error();
  set(op, classes.of_operation.graph, self_);
  set(op, classes.of_operation.id, number);
  set(op, classes.of_operation.outputs, outputs);
  for (int i = 0; i < node.num_outputs(); ++i) {
    nb::object tensor = make_tensor(op, self_, number, i, node.output_type(i));
    PyList_SET_ITEM(outputs.ptr(), i, tensor.release().ptr());
  }
  if (PyList_SetItem(operations_, id, op.inc_ref().ptr()) != 0) throw nb::python_error();
  return op;
}

nb::object PyGraph::tensor(Output output) {
  nb::object op = operation(output.node);
  nb::handle outputs = get(op, classes().of_operation.outputs);
  // Nodes that gradients widened have more outputs than when their Operation was made.
  const Node& node = graph_->node(output.node);
  for (auto i = static_cast<int>(PyList_GET_SIZE(outputs.ptr())); i < node.num_outputs(); ++i) {
    nb::object tensor = make_tensor(op, self_, nb::int_(output.node), i, node.output_type(i));
    if (PyList_Append(outputs.ptr(), tensor.ptr()) != 0) throw nb::python_error();
  }
  return nb::borrow(PyList_GET_ITEM(outputs.ptr(), output.index));
}

bool is_tensor(nb::handle object) { return Py_TYPE(object.ptr()) == classes().tensor; }
bool is_operation(nb::handle object) { return Py_TYPE(object.ptr()) == classes().operation; }

PyGraph& graph_of(nb::handle object) {
  const Classes& known = classes();
  if (is_tensor(object)) return *nb::inst_ptr<PyGraph>(get(object, known.of_tensor.graph));
  if (!is_operation(object)) raise_not("an operation or tensor", object);
  return *nb::inst_ptr<PyGraph>(get(object, known.of_operation.graph));
}

Output output_of(nb::handle tensor) {
  if (!is_tensor(tensor)) raise_not("a tensor", tensor);
  const Classes& known = classes();
  return {static_cast<NodeId>(PyLong_AsLongLong(get(tensor, known.of_tensor.id).ptr())),
          static_cast<int32_t>(PyLong_AsLongLong(get(tensor, known.of_tensor.index).ptr()))};
}

NodeId node_of(nb::handle operation) {
  if (!is_operation(operation)) raise_not("an operation", operation);
  const nb::handle id = get(operation, classes().of_operation.id);
  return static_cast<NodeId>(PyLong_AsLongLong(id.ptr()));
}

DType type_of(nb::handle tensor) { return graph_of(tensor).graph().output_type(output_of(tensor)); }

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

// The argument of a body that is being differentiated that stands for a tensor of `own`, the graph
// around the function whose body it is; invalid where there is none.
Expr argument_for(PyGraph& graph, PyGraph& own, Output output) {
  if (!own.captures_values()) return {};
  for (PyGraph* g = &graph; g != nullptr && g != &own; g = g->outer()) {
    if (!g->stands_for_body) continue;
    const nb::object names = nb::getattr(own.python(), "_captured_names", nb::none());
    if (names.is_none()) return {};
    const nb::object name = names.attr("get")(nb::make_tuple(output.node, output.index));
    if (name.is_none()) return {};
    const NodeId id = g->graph().find(nb::cast<std::string>(name));
    return id < 0 ? Expr() : g->expr({id, 0});
  }
  return {};
}

}  // namespace

bool can_import(PyGraph& graph, nb::handle tensor) {
  PyGraph& own = graph_of(tensor);
  if (own.is_ancestor_of(graph) || graph.captures(own)) return true;
  return own.detached() && twin(graph, own, output_of(tensor)).valid();
}

Expr visible_expr(PyGraph& graph, nb::handle tensor) {
  PyGraph& own = graph_of(tensor);
  const Output output = output_of(tensor);
  Expr source;
  if (own.is_ancestor_of(graph)) {
    source = argument_for(graph, own, output);
    if (!source.valid()) source = own.expr(output);
  } else if (graph.captures(own)) {
    PyGraph& root = graph.root();
    source = root.expr(root.capture_value(tensor));
  } else if (own.detached()) {
    source = twin(graph, own, output);
  }
  if (!source.valid()) {
    nb::object message =
        library("millrace.graph.other_graph", "other_graph_message")(tensor, graph.python());
    PyErr_SetObject(library("millrace.core.errors", "OutOfScopeError").ptr(), message.ptr());
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
