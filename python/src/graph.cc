#include "python/src/graph.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "millrace/graph/function.h"
#include "millrace/graph/graph_def.h"
#include "python/src/array.h"
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
nb::handle tensor_class() { return library("millrace.ops.overloads", "Tensor"); }

// The graphs that are open on this thread, innermost last: borrowed, `with` statements hold them.
thread_local std::vector<PyObject*> open_graphs;

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

// Tells threads apart. One that has ended may have stood for another before; it left no context
// open then.
const void* this_thread() {
  thread_local const char place = 0;
  return &place;
}

}  // namespace

PyGraph::PyGraph()
    : maker_(this_thread()),
      graph_(make_ref<Graph>()),
      own_(std::make_unique<GraphBuilder>(*graph_)) {
  builder_ = own_.get();
}

PyGraph::PyGraph(PyGraph* outer) : maker_(this_thread()), outer_(outer) {}

PyGraph::Contexts& PyGraph::here() const {
  return maker_ == this_thread() ? contexts_ : of_threads_[this_thread()].contexts;
}

PyGraph::Places& PyGraph::places() const {
  if (first_places_ == nullptr || maker_ == this_thread()) return places_;
  std::unique_ptr<Places>& own = of_threads_[this_thread()].places;
  if (own == nullptr) own = std::make_unique<Places>(*first_places_);
  return *own;
}

void PyGraph::attach(GraphBuilder& builder) {
  builder_ = &builder;
  graph_ = Ref<Graph>(&builder.graph());
}

void PyGraph::detach() {
  builder_ = nullptr;
  if (outer_ != nullptr) outer_->nodes_of_bodies_ += nodes_of_bodies_ + graph_->num_nodes();
}

int64_t PyGraph::last_id() const {
  int64_t count = 0;
  for (const PyGraph* g = this; g != nullptr; g = g->outer_) {
    count += g->nodes_of_bodies_ + g->graph_->num_nodes();
  }
  return count;
}

bool PyGraph::is_ancestor_of(const PyGraph& other) const {
  for (const PyGraph* g = &other; g != nullptr; g = g->outer_) {
    if (g == this) return true;
  }
  return false;
}

GraphBuilder& PyGraph::builder(std::string_view what) {
  if (finalized) {
    std::string message = "Graph is finalized and cannot be modified.";
    if (!what.empty()) message += str_cat(" ", what, " was to be added.");
    const std::string line = describe_origin(origin());
    if (!line.empty()) message += str_cat("\n", line);
    PyErr_SetString(PyExc_RuntimeError, message.c_str());
    throw nb::python_error();
  }
  if (builder_ == nullptr) {
    PyErr_SetString(
        PyExc_ValueError,
        "The branch or loop body that this graph belongs to is finished: nothing can be "
        "added to it any more.");
    throw nb::python_error();
  }
  return *builder_;
}

GraphBuilder& PyGraph::ready_builder() {
  GraphBuilder& b = builder();
  GraphBuilder::Context& context = b.context();
  context.scope = here().scope;
  context.device = places().device;
  context.control_inputs = control_inputs_for({});
  context.colocate_with = places().colocation;
  context.origin = origin();
  context.attrs = attrs;
  return b;
}

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

std::vector<NodeId> PyGraph::control_inputs_for(const std::vector<Output>& inputs) const {
  std::vector<NodeId> out;
  for (const Controller& controller : here().controllers) {
    auto made_inside = [&](Output input) { return controller.seen.contains(input.node); };
    if (std::any_of(inputs.begin(), inputs.end(), made_inside)) continue;
    for (NodeId id : controller.inputs) {
      auto is_input = [&](Output input) { return input.node == id; };
      if (std::none_of(inputs.begin(), inputs.end(), is_input)) out.push_back(id);
    }
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::vector<NodeId> PyGraph::outer_waits(const std::vector<Expr>& results) const {
  std::vector<NodeId> out = outer_control_inputs;
  if (outer_controllers.empty()) return out;
  std::vector<NodeId> todo;
  std::unordered_set<NodeId> needed;
  const auto need = [&](NodeId id) {
    if (needed.insert(id).second) todo.push_back(id);
  };
  for (Expr result : results) need(GraphBuilder::output(result).node);
  while (!todo.empty()) {
    const Node& node = graph_->node(todo.back());
    todo.pop_back();
    for (Output input : node.inputs()) need(input.node);
    for (NodeId control : node.control_inputs()) need(control);
  }
  for (const Controller& controller : outer_controllers) {
    const auto is_needed = [&](NodeId id) { return needed.contains(id); };
    if (std::none_of(controller.seen.begin(), controller.seen.end(), is_needed)) continue;
    out.insert(out.end(), controller.outer_inputs.begin(), controller.outer_inputs.end());
  }
  return out;
}

void PyGraph::made(NodeId id) {
  for (Controller& controller : here().controllers) controller.seen.insert(id);
  if (places().device_functions) nb::handle(self_).attr("_apply_device_functions")(operation(id));
}

NodeId PyGraph::add(const std::string& op, std::string name, std::vector<Output> inputs,
                    AttrMap node_attrs) {
  builder(finalized ? str_cat(op, " \"", name, "\"") : "");  // may it be changed at all?
  NodeSpec spec;
  spec.op = op;
  spec.name = std::move(name);
  spec.control_inputs = control_inputs_for(inputs);
  const Places& places = this->places();
  spec.device = places.device;
  spec.origin = origin();
  spec.inputs = std::move(inputs);
  spec.attrs = std::move(node_attrs);
  for (const auto& [key, value] : attrs) {
    if (spec.attrs.find(key) == nullptr) spec.attrs.set(key, value);
  }
  if (!gradient_overrides.empty()) {
    const auto rule = gradient_overrides.find(op);
    if (rule != gradient_overrides.end()) spec.attrs.set("_gradient_op_type", rule->second);
  }
  if (!kernel_labels.empty()) {
    const auto label = kernel_labels.find(op);
    if (label != kernel_labels.end()) spec.attrs.set("_kernel", label->second);
  }
  if (!places.colocation.empty()) {
    std::vector<std::string> groups;
    if (spec.attrs.find("_class") != nullptr) {
      groups = unwrap_value(read_attr<std::vector<std::string>>(spec.attrs, "_class"));
    }
    for (const std::string& other : places.colocation) groups.push_back("loc:@" + other);
    std::sort(groups.begin(), groups.end());
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    spec.attrs.set("_class", std::move(groups));
  }
  const std::vector<Output> given = spec.inputs;
  const Result<NodeId> added = graph_->add(std::move(spec));
  if (!added.ok()) {
    raise_value_error(given.empty() ? added.status()
                                    : added.status().with_line(describe_inputs(*graph_, given)));
  }
  const NodeId id = *added;
  if (!here().controllers.empty() || places.device_functions) made(id);
  return id;
}

namespace {

// Files whose frames are not the user's: those of this package and of Python's own library.
bool is_library_file(PyObject* filename) {
  static std::unordered_map<PyObject*, bool> known;  // keeps its keys alive
  const auto found = known.find(filename);
  if (found != known.end()) return found->second;
  const bool result =
      nb::cast<bool>(library("millrace.core.origin", "is_library_file")(nb::borrow(filename)));
  Py_INCREF(filename);
  known.emplace(filename, result);
  return result;
}

struct Place {
  PyObject* file;
  PyObject* function;
  int line;
  friend bool operator==(const Place&, const Place&) = default;
};
struct PlaceHash {
  size_t operator()(const Place& p) const {
    return std::hash<void*>()(p.file) * 31 + std::hash<void*>()(p.function) * 7 +
           static_cast<size_t>(p.line);
  }
};

OriginId origin_of_frame(PyObject* file, PyObject* function, int line) {
  static std::unordered_map<Place, OriginId, PlaceHash> known;
  const Place place{file, function, line};
  const auto found = known.find(place);
  if (found != known.end()) return found->second;
  nb::object code = library("millrace.core.origin", "source_line")(nb::borrow(file), line);
  const OriginId id = intern_origin({.file = nb::cast<std::string>(nb::borrow(file)),
                                     .line = line,
                                     .function = nb::cast<std::string>(nb::borrow(function)),
                                     .code = nb::cast<std::string>(code)});
  Py_INCREF(file);
  Py_INCREF(function);
  known.emplace(place, id);
  return id;
}

}  // namespace

OriginId PyGraph::origin() {
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const bool users = !is_library_file(code->co_filename);
    OriginId id = 0;
    if (users) id = origin_of_frame(code->co_filename, code->co_name, PyFrame_GetLineNumber(frame));
    Py_DECREF(code);
    PyFrameObject* back = users ? nullptr : PyFrame_GetBack(frame);
    Py_DECREF(frame);
    if (users) return id;
    frame = back;
  }
  return 0;
}

PyGraph& default_graph() {
  if (open_graphs.empty()) {
    return nb::cast<PyGraph&>(library("millrace.graph.default_graph", "global_graph")());
  }
  return nb::cast<PyGraph&>(nb::handle(open_graphs.back()));
}

DefaultGraph::DefaultGraph(nb::handle graph) { open_graphs.push_back(graph.inc_ref().ptr()); }
DefaultGraph::~DefaultGraph() {
  nb::handle(open_graphs.back()).dec_ref();
  open_graphs.pop_back();
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

nb::object shape_tuple(const PartialShape& shape) {
  if (!shape.rank_known()) return nb::none();
  PyObject* tuple = PyTuple_New(shape.rank());
  for (int i = 0; i < shape.rank(); ++i) {
    PyObject* size = shape.dim_known(i) ? PyLong_FromLongLong(shape.dim(i)) : Py_NewRef(Py_None);
    PyTuple_SET_ITEM(tuple, i, size);
  }
  return nb::steal(tuple);
}

PartialShape shape_from_python(nb::handle shape) {
  nb::object dims = library("millrace.core.shapes", "as_dims")(shape);
  if (dims.is_none()) return PartialShape::unknown();
  std::vector<int64_t> sizes;
  for (nb::handle size : dims) {
    sizes.push_back(size.is_none() ? PartialShape::kUnknownDim : nb::cast<int64_t>(size));
  }
  return unwrap_value(PartialShape::make(sizes));
}

void bind_graph(nb::module_& m) {
  nb::class_<PyGraph>(m, "GraphBase")
      .def(nb::init<>())
      .def(nb::init<PyGraph*>(), nb::arg("outer"))
      .def("_set_python",
           [](nb::handle self, nb::handle operations) {
             nb::cast<PyGraph&>(self).set_python(self.ptr(), operations.ptr());
           })
      .def_prop_rw(
          "_scope", [](PyGraph& g) { return g.here().scope; },
          [](PyGraph& g, std::string scope) { g.here().scope = std::move(scope); })
      .def_prop_rw(
          "_scope_is_absolute", [](PyGraph& g) { return g.here().scope_is_absolute; },
          [](PyGraph& g, bool absolute) { g.here().scope_is_absolute = absolute; })
      .def_prop_rw(
          "_device", [](PyGraph& g) { return g.places().device; },
          [](PyGraph& g, std::string device) { g.places().device = std::move(device); })
      .def_prop_rw(
          "_device_functions_open", [](PyGraph& g) { return g.places().device_functions; },
          [](PyGraph& g, bool open) { g.places().device_functions = open; })
      .def_prop_rw(
          "_colocation", [](PyGraph& g) { return g.places().colocation; },
          [](PyGraph& g, std::vector<std::string> names) {
            g.places().colocation = std::move(names);
          })
      .def("_places_by_thread", &PyGraph::places_by_thread)
      .def_rw("_finalized", &PyGraph::finalized)
      .def_prop_ro("_num_nodes", [](PyGraph& g) { return g.graph().num_nodes(); })
      .def_prop_ro("_last_id", &PyGraph::last_id)
      .def("_operation",
           [](PyGraph& g, NodeId id) {
             if (id < 0 || id >= g.graph().num_nodes()) throw nb::index_error();
             return g.operation(id);
           })
      .def("_find", [](PyGraph& g, std::string_view name) { return g.graph().find(name); })
      .def("_unique_name",
           [](PyGraph& g, std::string_view base) { return g.graph().unique_name(base); })
      .def(
          "_open_controller",
          [](PyGraph& g, std::vector<NodeId> inputs, std::vector<NodeId> outer_inputs) {
            g.here().controllers.push_back({std::move(inputs), {}, std::move(outer_inputs)});
          },
          nb::arg("inputs"), nb::arg("outer_inputs") = std::vector<NodeId>())
      .def("_open_control_inputs",
           [](PyGraph& g) { return g.ready_builder().context().control_inputs; })
      .def("_close_controller",
           [](PyGraph& g) {
             std::vector<PyGraph::Controller>& open = g.here().controllers;
             if (!open.back().outer_inputs.empty()) {
               g.outer_controllers.push_back(std::move(open.back()));
             }
             open.pop_back();
           })
      // Takes the open controllers away (control_dependencies(None)) and gives them back.
      .def(
          "_swap_controllers",
          [](PyGraph& g, nb::object saved) -> nb::object {
            std::vector<PyGraph::Controller>& open = g.here().controllers;
            auto* now = new std::vector<PyGraph::Controller>(std::move(open));
            open.clear();
            if (!saved.is_none()) {
              open = std::move(*static_cast<std::vector<PyGraph::Controller>*>(
                  nb::borrow<nb::capsule>(saved).data()));
            }
            return nb::capsule(now, [](void* p) noexcept {
              delete static_cast<std::vector<PyGraph::Controller>*>(p);
            });
          },
          nb::arg("saved").none())
      .def("_add_outer_control",
           [](PyGraph& g, NodeId id) { g.outer_control_inputs.push_back(id); })
      .def(
          "_set_attr_scope",
          [](PyGraph& g, const std::string& name, nb::handle value) {
            if (value.is_none()) {
              g.attrs.erase(name);
            } else {
              g.attrs.set(name, AttrValue(nb::cast<std::string>(value)));
            }
          },
          nb::arg("name"), nb::arg("value").none())
      .def(
          "_set_gradient_override",
          [](PyGraph& g, const std::string& op, nb::handle rule) {
            if (rule.is_none())
              g.gradient_overrides.erase(op);
            else
              g.gradient_overrides[op] = nb::cast<std::string>(rule);
          },
          nb::arg("op"), nb::arg("rule").none())
      .def("_gradient_override",
           [](PyGraph& g, const std::string& op) -> std::optional<std::string> {
             const auto found = g.gradient_overrides.find(op);
             if (found == g.gradient_overrides.end()) return std::nullopt;
             return found->second;
           })
      .def(
          "_set_kernel_label",
          [](PyGraph& g, const std::string& op, nb::handle label) {
            if (label.is_none())
              g.kernel_labels.erase(op);
            else
              g.kernel_labels[op] = nb::cast<std::string>(label);
          },
          nb::arg("op"), nb::arg("label").none())
      .def("_set_back_edge",
           [](PyGraph& g, NodeId merge, int index, NodeId node, int32_t output) {
             const Status status = g.graph().set_back_edge(merge, index, {node, output});
             if (!status.ok()) raise_value_error(status);
           })
      // What Operation and Tensor ask about their node.
      .def("_node_name", [](PyGraph& g, NodeId id) { return g.graph().node(id).name(); })
      .def("_node_type", [](PyGraph& g, NodeId id) { return g.graph().node(id).op_name(); })
      .def("_node_device", [](PyGraph& g, NodeId id) { return g.graph().node(id).device(); })
      .def("_node_origin",
           [](PyGraph& g, NodeId id) {
             const Origin& origin = origin_of(g.graph().node(id).origin());
             return nb::make_tuple(origin.file, origin.line, origin.function, origin.code);
           })
      .def("_node_inputs",
           [](PyGraph& g, NodeId id) {
             nb::list out;
             for (Output input : g.graph().node(id).inputs()) out.append(g.tensor(input));
             return out;
           })
      .def("_node_input_types",
           [](PyGraph& g, NodeId id) {
             nb::list out;
             for (DType type : g.graph().node(id).input_types()) out.append(dtype_object(type));
             return out;
           })
      .def("_node_control_inputs",
           [](PyGraph& g, NodeId id) {
             nb::list out;
             for (NodeId input : g.graph().node(id).control_inputs())
               out.append(g.operation(input));
             return out;
           })
      .def("_node_stateful",
           [](PyGraph& g, NodeId id) { return g.graph().node(id).op().traits.stateful; })
      .def("_node_attr",
           [](PyGraph& g, NodeId id, std::string_view name) {
             const Node& node = g.graph().node(id);
             const AttrValue* value = node.attrs().find(name);
             if (value == nullptr) {
               raise_value_error(invalid_argument("Operation '", node.name(), "' (", node.op_name(),
                                                  ") has no attr named '", name, "'."));
             }
             return attr_to_python(*value);
           })
      .def("_node_attr_names",
           [](PyGraph& g, NodeId id) {
             std::vector<std::string> names;
             for (const auto& [name, value] : g.graph().node(id).attrs()) names.push_back(name);
             return names;
           })
      .def("_set_node_attr",
           [](PyGraph& g, NodeId id, const std::string& name, nb::handle value) {
             const AttrDef* def = g.graph().node(id).op().find_attr(name);
             AttrDef text{.name = name, .type = "string"};
             check(g.graph().set_attr(
                 id, name,
                 attr_from_python(g.graph().node(id).op_name(), def ? *def : text, value)));
           })
      .def("_set_node_device",
           [](PyGraph& g, NodeId id, std::string device) {
             check(g.graph().set_device(id, std::move(device)));
           })
      .def("_add_control_input",
           [](PyGraph& g, NodeId id, NodeId source) {
             check(g.graph().add_control_input(id, source));
           })
      .def("_shape", [](PyGraph& g, NodeId id,
                        int index) { return shape_tuple(g.graph().facts({id, index}).shape); })
      .def(
          "_set_shape",
          [](PyGraph& g, NodeId id, int index, nb::handle shape) {
            const Status status = g.graph().merge_shape({id, index}, shape_from_python(shape));
            if (!status.ok()) raise_value_error(status);
          },
          nb::arg("id"), nb::arg("index"), nb::arg("shape").none())
      // What is known of a tensor's elements before anything runs: an array, or a list with None
      // for the elements not known, or None.
      .def("_constant_value",
           [](PyGraph& g, NodeId id, int index) -> nb::object {
             const TensorFacts& facts = g.graph().facts({id, index});
             if (facts.constant == nullptr) return nb::none();
             return array_from_tensor(*facts.constant);
           })
      .def("_partial_value",
           [](PyGraph& g, NodeId id, int index) -> nb::object {
             const TensorFacts& facts = g.graph().facts({id, index});
             if (!facts.value) return nb::none();
             nb::list out;
             for (const std::optional<int64_t>& e : facts.value->elements) {
               out.append(e ? nb::object(nb::int_(*e)) : nb::none());
             }
             if (facts.value->is_scalar) return nb::object(out[0]);
             return out;
           })
      // Shape and dtype of what a resource or list holds: [(dtype, dims)].
      .def("_contents",
           [](PyGraph& g, NodeId id, int index) {
             nb::list out;
             for (const auto& held : g.graph().facts({id, index}).resource) {
               out.append(nb::make_tuple(dtype_object(held.dtype), shape_tuple(held.shape)));
             }
             return out;
           })
      .def(
          "_graph_def",
          [](PyGraph& g, int begin, int end) {
            const std::string bytes = unwrap(export_graph_def_bytes(g.graph(), begin, end));
            return nb::bytes(bytes.data(), bytes.size());
          },
          nb::arg("begin") = 0, nb::arg("end") = -1)
      .def_prop_rw(
          "_producer", [](PyGraph& g) { return g.graph().producer_version(); },
          [](PyGraph& g, int version) { g.graph().set_producer_version(version); })
      .def("_import",
           [](PyGraph& g, nb::bytes def, const std::string& prefix,
              const std::vector<std::pair<std::string, nb::object>>& input_map,
              const std::vector<NodeId>& control, const std::string& device, bool uniquify,
              const std::vector<std::string>& outputs) {
             g.builder();
             ImportOptions options;
             options.prefix = prefix;
             for (const auto& [name, tensor] : input_map) {
               options.input_map.emplace_back(name, import_tensor(g, tensor));
             }
             options.control_dependencies = control;
             options.default_device = device;
             options.uniquify_names = uniquify;
             options.return_outputs = outputs;
             const ImportResult result = unwrap_value(
                 import_graph_def_bytes({def.c_str(), def.size()}, options, g.graph()));
             nb::list made;
             for (Output output : result.outputs) made.append(g.tensor(output));
             return nb::make_tuple(made, result.unknown_ops);
           })
      .def("_function_names", [](PyGraph& g) { return g.graph().functions().names(); });

  m.def("open_graph", [](nb::handle graph) { open_graphs.push_back(graph.inc_ref().ptr()); });
  m.def("close_graph", [] {
    nb::handle(open_graphs.back()).dec_ref();
    open_graphs.pop_back();
  });
  m.def("innermost_graph", []() -> nb::object {
    if (open_graphs.empty()) return nb::none();
    return nb::borrow(open_graphs.back());
  });
  // Where in the user's program we are, to end a message with: a new line, then "defined at
  // train.py:14  h = tf.matmul(x, w)". Empty where nobody knows.
  m.def("user_line", [] {
    const std::string line = describe_origin(PyGraph::origin());
    return line.empty() ? line : str_cat("\n", line);
  });
  m.def("open_graph_count", [] { return open_graphs.size(); });
  m.def("is_valid_node_name", [](std::string_view name) { return is_valid_node_name(name); });
  m.def("is_valid_scope_name", [](std::string_view name) { return is_valid_scope_name(name); });
  m.attr("GRAPH_DEF_VERSION") = kGraphVersion;
}

}  // namespace millrace::python
