#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "millrace/graph/function.h"
#include "millrace/graph/graph_def.h"
#include "millrace/runtime/portable_graph.h"
#include "proto/graph.pb.h"
#include "python/src/array.h"
#include "python/src/eager_tensor.h"
#include "python/src/elements.h"
#include "python/src/graph.h"
#include "python/src/origin.h"
#include "python/src/scope.h"
#include "python/src/status.h"

// What Python's Graph, Operation and Tensor ask of a graph.

namespace millrace::python {

void bind_graph(nb::module_& m) {
  nb::class_<PyGraph>(m, "GraphBase")
      .def(nb::init<>())
      .def(nb::init<PyGraph*>(), nb::arg("outer"))
      // GraphBase(True): the graph around functions that are traced from eager code.
      .def("__init__",
           [](PyGraph* self, bool) { new (self) PyGraph(eager_runtime().functions->share()); })
      .def_prop_ro("_captures_values", &PyGraph::captures_values)
      .def("_captured_values", &PyGraph::captured_values)
      .def("_capture_value",
           [](PyGraph& g, nb::handle value) { return g.tensor(g.capture_value(value)); })
      .def("_set_python",
           [](nb::handle self, nb::handle operations) {
             nb::cast<PyGraph&>(self).set_python(self.ptr(), operations.ptr());
           })
      .def_prop_ro("_scope", [](PyGraph& g) { return g.here().scope; })
      .def_prop_ro("_scope_is_absolute", [](PyGraph& g) { return g.here().scope_is_absolute; })
      .def(
          "_open_scope", [](PyGraph& g, nb::handle name) { return OpenScope(g, name, false); },
          nb::arg("name").none())
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
      .def("_unique_name", &PyGraph::unique_name)
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
             std::vector<Controller>& open = g.here().controllers;
             if (!open.back().outer_inputs.empty()) {
               g.outer_controllers.push_back(std::move(open.back()));
             }
             open.pop_back();
           })
      // Takes the open controllers away (control_dependencies(None)) and gives them back.
      .def(
          "_swap_controllers",
          [](PyGraph& g, nb::object saved) -> nb::object {
            std::vector<Controller>& open = g.here().controllers;
            auto* now = new std::vector<Controller>(std::move(open));
            open.clear();
            if (!saved.is_none()) {
              open = std::move(
                  *static_cast<std::vector<Controller>*>(nb::borrow<nb::capsule>(saved).data()));
            }
            return nb::capsule(
                now, [](void* p) noexcept { delete static_cast<std::vector<Controller>*>(p); });
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
             const Node& node = g.graph().node(id);
             check(g.graph().set_attr(id, name,
                                      attr_from_python(node.op_name(), &node.op(), name, value)));
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
            const bool whole = begin == 0 && end == -1;
            const std::string bytes = unwrap(whole ? portable_graph_def_bytes(g.graph())
                                                   : export_graph_def_bytes(g.graph(), begin, end));
            return nb::bytes(bytes.data(), bytes.size());
          },
          nb::arg("begin") = 0, nb::arg("end") = -1)
      // A GraphDef with no nodes: the functions that the graph's nodes lead to.
      .def("_functions_def",
           [](PyGraph& g) {
             tensorflow::GraphDef def;
             for (const Ref<Function>& function : unwrap(reachable_functions(g.graph()))) {
               function_to_proto(*function, *def.mutable_library()->add_function());
             }
             const std::string bytes = def.SerializeAsString();
             return nb::bytes(bytes.data(), bytes.size());
           })
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

  m.def("open_graph", [](nb::handle graph) { Context::here().open_graph(graph); });
  m.def("close_graph", [] { Context::here().close_graph(); });
  m.def("innermost_graph", []() -> nb::object {
    const nb::handle graph = Context::here().innermost_graph();
    return graph.is_valid() ? nb::borrow(graph) : nb::none();
  });
  m.def("open_graph_count", [] { return Context::here().num_open_graphs(); });
  // Where in the user's program we are, to end a message with: a new line, then "defined at
  // train.py:14  h = tf.matmul(x, w)". Empty where nobody knows.
  m.def("user_line", [] {
    const std::string line = describe_origin(user_origin());
    return line.empty() ? line : str_cat("\n", line);
  });
  m.def("is_valid_node_name", [](std::string_view name) { return is_valid_node_name(name); });
  m.def("is_valid_scope_name", [](std::string_view name) { return is_valid_scope_name(name); });
  m.attr("GRAPH_DEF_VERSION") = kGraphVersion;
}

}  // namespace millrace::python
