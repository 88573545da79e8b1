#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "millrace/graph/functional_builders.h"
#include "python/src/array.h"
#include "python/src/elements.h"
#include "python/src/function_graph.h"
#include "python/src/graph.h"
#include "python/src/status.h"

// Branches, loops and functions whose parts are Python code.

namespace millrace::python {

nb::object open_function_graph(PyGraph& outer, GraphBuilder& inside) {
  nb::object graph = library("millrace.graph.graph", "FunctionGraph")(outer.python());
  auto& core = nb::cast<PyGraph&>(graph);
  core.attach(inside);
  core.places().device = outer.places().device;
  core.attrs = outer.attrs;
  core.gradient_overrides = outer.gradient_overrides;
  core.kernel_labels = outer.kernel_labels;
  return graph;
}

namespace {

// The tracer of every body: runs a Python function that builds it, which gets the parameters as a
// list of Tensors and gives a list of Tensors. What it must wait for outside becomes the settings
// of the builder around.
class Part {
 public:
  // `gradients`: constants that the body uses can be differentiated by, so they are captured and
  // not copied.
  Part(PyGraph& outer, nb::handle code, PendingException& pending, bool gradients = true)
      : outer_(outer), code_(code), pending_(pending), gradients_(gradients) {}

  std::vector<Expr> operator()(FunctionBuilder& inside, const std::vector<Expr>& parameters) {
    try {
      return build(inside, parameters);
    } catch (nb::python_error& error) {
      inside.fail(pending_.keep(error));
      return {};
    }
  }

 private:
  std::vector<Expr> build(FunctionBuilder& inside, const std::vector<Expr>& parameters) {
    if (gradients_) inside.capture_differentiable_constants();
    // The code may add to the graph around, too: the node is made with the settings of now.
    const GraphBuilder::Context settings = outer_.builder().context();
    nb::object graph = open_function_graph(outer_, inside);
    auto& core = nb::cast<PyGraph&>(graph);
    struct Close {
      PyGraph& core;
      ~Close() { core.detach(); }
    } close{core};
    nb::list arguments;
    for (Expr parameter : parameters)
      arguments.append(core.tensor(GraphBuilder::output(parameter)));
    nb::object results;
    {
      DefaultGraph open(graph);
      results = code_(arguments);
      if (core.root().captures_values()) {
        results = library("millrace.eager.control", "in_order")(graph, results);
      }
    }
    std::vector<Expr> out;
    for (nb::handle result : results) out.push_back(core.expr(import_tensor(core, result)));
    outer_.builder().context() = settings;
    std::vector<NodeId>& waits = outer_.builder().context().control_inputs;
    for (NodeId id : core.outer_waits(out)) {
      if (std::find(waits.begin(), waits.end(), id) == waits.end()) waits.push_back(id);
    }
    return out;
  }

  PyGraph& outer_;
  nb::handle code_;
  PendingException& pending_;
  bool gradients_;
};

// The outputs of a functional node as Tensors, once `outputs` are there.
nb::object finish(PyGraph& graph, PendingException& pending, const std::vector<Expr>& outputs) {
  const Status status = graph.builder().take_status();
  pending.rethrow();
  if (!status.ok()) raise_value_error(status);
  if (!outputs.empty()) graph.made(GraphBuilder::output(outputs[0]).node);
  nb::list out;
  for (Expr output : outputs) out.append(graph.tensor(GraphBuilder::output(output)));
  return out;
}

nb::object add_if_node(PyGraph& graph, nb::handle predicate, nb::handle then_code,
                       nb::handle else_code, const std::string& name) {
  PendingException pending;
  GraphBuilder& builder = graph.ready_builder();
  const Expr selector = graph.expr(import_tensor(graph, predicate));
  Part then_part(graph, then_code, pending);
  Part else_part(graph, else_code, pending);
  return finish(graph, pending, add_if(builder, selector, then_part, else_part, name));
}

nb::object add_case_node(PyGraph& graph, nb::handle index, const std::vector<nb::object>& codes,
                         const std::string& name) {
  PendingException pending;
  GraphBuilder& builder = graph.ready_builder();
  const Expr selector = graph.expr(import_tensor(graph, index));
  std::vector<Part> parts;
  for (const nb::object& code : codes) parts.emplace_back(graph, code, pending);
  std::vector<BuildFunction> branches(parts.begin(), parts.end());
  return finish(graph, pending, add_case(builder, selector, branches, name));
}

nb::object add_while_node(PyGraph& graph, const std::vector<nb::object>& variables,
                          nb::handle condition, nb::handle body, const nb::list& invariants,
                          int64_t parallel_iterations, const std::string& name) {
  PendingException pending;
  GraphBuilder& builder = graph.ready_builder();
  std::vector<Expr> initial;
  for (const nb::object& v : variables) initial.push_back(graph.expr(import_tensor(graph, v)));
  WhileOptions options;
  options.name = name;
  options.parallel_iterations = parallel_iterations;
  for (nb::handle shape : invariants) options.shape_invariants.push_back(shape_from_python(shape));
  Part condition_part(graph, condition, pending);
  Part body_part(graph, body, pending);
  return finish(graph, pending, add_while(builder, initial, condition_part, body_part, options));
}

// A function in the library of `graph`: its parameters have the types and shapes given. Returns its
// name, the tensors around it that it uses, its result types and shapes, and whether it is
// stateful. Without `gradients`, constants around it are copied into it.
nb::object add_function(PyGraph& graph, const std::string& name, const nb::list& types,
                        const nb::list& shapes, const std::vector<std::string>& names,
                        nb::handle code, bool gradients) {
  PendingException pending;
  GraphBuilder& outer = graph.ready_builder();
  FunctionBuilder inside(outer);
  std::vector<Expr> parameters;
  for (size_t i = 0; i < nb::len(types); ++i) {
    TensorFacts facts;
    facts.shape = shape_from_python(shapes[i]);
    parameters.push_back(
        inside.add_parameter(names[i], dtype_from_object(types[i]), std::move(facts)));
  }
  if (Status status = inside.take_status(); !status.ok()) raise_value_error(status);
  Part part(graph, code, pending, gradients);
  const std::vector<Expr> results = part(inside, parameters);
  pending.rethrow();
  if (Status status = inside.take_status(); !status.ok()) raise_value_error(status);
  std::vector<Output> arguments;
  for (Expr parameter : parameters) arguments.push_back(GraphBuilder::output(parameter));
  nb::list captures;
  for (const FunctionBuilder::Capture& capture : inside.captures()) {
    const Output inner = GraphBuilder::output(capture.inner);
    if (!inside.graph().node(inner.node).op().traits.argument) continue;
    arguments.push_back(inner);
    captures.append(graph.tensor(GraphBuilder::output(capture.outer)));
  }
  std::vector<Output> outputs;
  nb::list result_types;
  nb::list result_shapes;
  for (Expr result : results) {
    outputs.push_back(GraphBuilder::output(result));
    result_types.append(dtype_object(result.dtype()));
    result_shapes.append(shape_tuple(result.shape()));
  }
  std::string made = unwrap_value(inside.finish(name, arguments, outputs));
  const bool stateful = graph.graph().functions().find(made)->signature.traits.stateful;
  return nb::make_tuple(made, captures, result_types, result_shapes, stateful);
}

// The body of a function of the graph's library, to look at: (graph, arguments, results, whether it
// is stateful). `facts`: (shape, what a resource holds or None) for each
// argument, the latter as (dtype, shape). ValueError for a body that is no graph, or where there is
// none of that name.
nb::object function_body(PyGraph& around, const std::string& name, const nb::list& facts) {
  const Ref<FunctionLibrary> library_of_graph = around.graph().shared_functions();
  const Ref<Function> function = library_of_graph->find(name);
  const Ref<FunctionBody> body =
      unwrap_value(library_of_graph->instantiate(name, {}, around.graph().registry()));
  if (nb::len(facts) != body->args.size()) {
    raise_value_error(invalid_argument("function ", name, " takes ", body->args.size(),
                                       " arguments, expected ", nb::len(facts)));
  }
  std::vector<TensorFacts> known;
  for (nb::handle fact : facts) {
    TensorFacts& of = known.emplace_back();
    of.shape = shape_from_python(fact[0]);
    if (nb::object held = fact[1]; !held.is_none()) {
      of.resource.push_back({dtype_from_object(held[0]), shape_from_python(held[1])});
    }
  }
  const Ref<FunctionBody> copy = unwrap_value(copy_body(*body, library_of_graph, known));
  GraphBuilder builder(*copy->graph);
  nb::object graph = library("millrace.graph.graph", "FunctionGraph")(around.python());
  auto& core = nb::cast<PyGraph&>(graph);
  core.attach(builder);
  core.detach();
  nb::list arguments, results;
  for (NodeId argument : copy->args) arguments.append(core.tensor({argument, 0}));
  for (NodeId result : copy->results) {
    results.append(core.tensor(copy->graph->node(result).input(0)));
  }
  return nb::make_tuple(graph, arguments, results, function->signature.traits.stateful);
}

}  // namespace

void bind_control_flow(nb::module_& m) {
  // A function made from a graph whose nodes are there: from `arguments` to `results`, both its
  // tensors. Its name. ValueError where the results need something else that is no constant.
  m.def("make_function",
        [](PyGraph& graph, const std::string& name, const std::vector<nb::object>& arguments,
           const std::vector<nb::object>& results) {
          const auto outputs = [](const std::vector<nb::object>& tensors) {
            std::vector<Output> out;
            for (const nb::object& tensor : tensors) out.push_back(output_of(tensor));
            return out;
          };
          FunctionLibrary& library = graph.graph().functions();
          std::string unique = library.unique_name(name);
          check(library.add(unwrap_value(
              function_from_graph(graph.graph(), unique, outputs(arguments), outputs(results)))));
          return unique;
        });
  // The tensor around the function in the making that `tensor`, one of its own, stands for; None
  // where it stands for none.
  m.def("capture_source", [](PyGraph& graph, nb::handle tensor) -> nb::object {
    auto* function = dynamic_cast<FunctionBuilder*>(&graph.builder());
    if (function == nullptr || graph.outer() == nullptr) return nb::none();
    const Output wanted = output_of(tensor);
    for (const FunctionBuilder::Capture& capture : function->captures()) {
      if (GraphBuilder::output(capture.inner) != wanted) continue;
      return graph.outer()->tensor(GraphBuilder::output(capture.outer));
    }
    return nb::none();
  });
  // The shapes of the results of a function of the graph's library, called with these tensors of
  // the graph, as far as its body tells; None where it tells nothing.
  m.def("call_shapes",
        [](PyGraph& graph, const std::string& name,
           const std::vector<nb::object>& arguments) -> nb::object {
          const Graph& around = graph.graph();
          std::vector<TensorFacts> facts;
          for (const nb::object& argument : arguments) {
            facts.push_back(around.facts(import_tensor(graph, argument)));
          }
          const FunctionLibrary& library = *around.shared_functions();
          const Ref<FunctionBody> body =
              unwrap_value(library.instantiate(name, {}, around.registry()));
          const Result<Ref<FunctionBody>> copy = copy_body(*body, around.shared_functions(), facts);
          if (!copy.ok()) return nb::none();
          nb::list shapes;
          for (NodeId result : (*copy)->results) {
            const Graph& inside = *(*copy)->graph;
            shapes.append(shape_tuple(inside.facts(inside.node(result).input(0)).shape));
          }
          return shapes;
        });
  m.def("function_body", &function_body);
  m.def("add_if", &add_if_node);
  m.def("add_case", &add_case_node);
  m.def("add_while", &add_while_node);
  m.def("add_function", &add_function, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
        nb::arg(), nb::arg("gradients") = true);
}

}  // namespace millrace::python
