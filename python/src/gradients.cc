#include "millrace/autodiff/gradients.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "millrace/autodiff/gradient_registry.h"
#include "millrace/autodiff/split_function.h"
#include "millrace/eager/builder.h"
#include "python/src/array.h"
#include "python/src/eager_tape.h"
#include "python/src/elements.h"
#include "python/src/function_graph.h"
#include "python/src/gil.h"
#include "python/src/graph.h"
#include "python/src/status.h"

// Gradients for Python, and rules written in Python.

namespace millrace::python {

namespace {

// A gradient as Python has it: None, a Tensor, or (values, indices, dense_shape or None).
Gradient gradient_from_python(PyGraph& graph, nb::handle value) {
  if (value.is_none()) return {};
  if (is_tensor(value)) return {graph.expr(import_tensor(graph, value)), {}, {}};
  nb::tuple parts = nb::cast<nb::tuple>(value);
  Gradient rows;
  rows.values = graph.expr(import_tensor(graph, parts[0]));
  rows.indices = graph.expr(import_tensor(graph, parts[1]));
  if (!parts[2].is_none()) rows.dense_shape = graph.expr(import_tensor(graph, parts[2]));
  return rows;
}

nb::object gradient_to_python(PyGraph& graph, const Gradient& gradient) {
  if (!gradient.valid()) return nb::none();
  const auto tensor = [&](Expr e) -> nb::object {
    return e.valid() ? graph.tensor(GraphBuilder::output(e)) : nb::none();
  };
  if (!gradient.is_slices()) return tensor(gradient.values);
  return nb::make_tuple(tensor(gradient.values), tensor(gradient.indices),
                        tensor(gradient.dense_shape));
}

// A computation of gradients that Python asked for on this thread.
struct Differentiation {
  PyGraph& graph;
  PendingException pending = {};  // what a rule in Python raised
};
// The innermost last, so that rules find the graph that belongs to a builder.
thread_local std::vector<Differentiation*> differentiating;

[[noreturn]] void raise_gradient_error(const Status& status) {
  // No gradient, or one that must not be taken (PreventGradient).
  if (status.code() == Code::kNotFound || status.code() == Code::kFailedPrecondition) {
    PyErr_SetString(PyExc_LookupError, std::string(status.message()).c_str());
    throw nb::python_error();
  }
  raise_value_error(status);
}

nb::object add_gradients(PyGraph& graph, const std::vector<nb::object>& ys,
                         const std::vector<nb::object>& xs, const std::vector<nb::object>& grad_ys,
                         const std::vector<nb::object>& stop, bool colocate, bool gate,
                         bool recompute, const std::vector<nb::object>& checkpoints,
                         int64_t memory_budget, bool swap_memory, bool zeros_for_unconnected,
                         const std::string& name) {
  GraphBuilder& builder = graph.ready_builder();
  const auto exprs = [&](const std::vector<nb::object>& tensors) {
    std::vector<Expr> out;
    for (const nb::object& t : tensors) out.push_back(visible_expr(graph, t));
    return out;
  };
  GradientOptions options;
  options.stop_gradients = exprs(stop);
  options.colocate = colocate;
  options.gate_operations = gate;
  options.recompute = recompute;
  options.checkpoints = exprs(checkpoints);
  options.memory_budget = memory_budget;
  options.swap_memory = swap_memory;
  options.zeros_for_unconnected = zeros_for_unconnected;
  options.name = name;
  std::vector<Gradient> incoming;
  for (const nb::object& g : grad_ys) incoming.push_back(gradient_from_python(graph, g));
  const std::vector<Expr> from = exprs(ys);
  const std::vector<Expr> to = exprs(xs);
  Differentiation here{graph};
  differentiating.push_back(&here);
  Result<std::vector<Gradient>> result = gradients(builder, from, to, incoming, options);
  differentiating.pop_back();
  (void)builder.take_status();
  here.pending.rethrow();
  if (!result.ok()) raise_gradient_error(result.status());
  const std::vector<Gradient> found = *std::move(result);
  nb::list out;
  for (const Gradient& g : found) out.append(gradient_to_python(graph, g));
  return out;
}

// The halves of a function of the graph's library, see SplitFunction: (forward, types of what it
// saves, backward, sources, [(argument, whether rows)], types of backward's results).
nb::object split(PyGraph& graph, const std::string& name, const std::vector<bool>& given,
                 const std::vector<bool>& wanted) {
  GraphBuilder& builder = graph.ready_builder();
  Differentiation here{graph};
  differentiating.push_back(&here);
  Result<SplitFunction> result = split_function(builder, {name, {}}, given, wanted);
  differentiating.pop_back();
  (void)builder.take_status();
  here.pending.rethrow();
  if (!result.ok()) raise_gradient_error(result.status());
  nb::list gradients;
  for (const SplitFunction::ArgumentGradient& g : result->gradients) {
    gradients.append(nb::make_tuple(g.argument, g.rows));
  }
  const auto types = [](const std::vector<DType>& dtypes) {
    nb::list out;
    for (DType dtype : dtypes) out.append(dtype_object(dtype));
    return out;
  };
  return nb::make_tuple(result->forward, types(result->saved), result->backward, result->sources,
                        gradients, types(result->backward_results));
}

// The graphs of Python that were opened for builders that had none.
struct Opened {
  std::vector<nb::object> graphs;
  ~Opened() {
    for (const nb::object& graph : graphs) nb::cast<PyGraph&>(graph).detach();
  }
};

// Python's graph for a builder: a known one, or one opened for it. Null where there is none around.
PyGraph* graph_for(GraphBuilder& builder, Opened& opened) {
  for (Differentiation* one : differentiating) {
    if (&one->graph.graph() == &builder.graph()) return &one->graph;
  }
  if (differentiating.empty()) return nullptr;
  auto* function = dynamic_cast<FunctionBuilder*>(&builder);
  // A builder of no function stands for a body that is differentiated, or called.
  PyGraph* outer =
      function != nullptr ? graph_for(function->outer(), opened) : &differentiating.back()->graph;
  opened.graphs.push_back(open_function_graph(*outer, builder));
  auto& made = nb::cast<PyGraph&>(opened.graphs.back());
  made.stands_for_body = function == nullptr;
  return &made;
}

// Calls `rule(op, *gradients)` and takes what it returns as the gradients of the inputs.
Status call_rule(nb::handle rule, GradientContext& context) {
  if (dynamic_cast<eager::Builder*>(&context.builder()) != nullptr) {
    return call_eager_rule(rule, context);
  }
  auto* builder = dynamic_cast<GraphBuilder*>(&context.builder());
  if (builder == nullptr) return unimplemented("a gradient in Python needs a graph to add to");
  WithGil gil;
  try {
    Opened opened;
    PyGraph* graph = graph_for(*builder, opened);
    if (graph == nullptr) {
      return unimplemented("a gradient in Python can be used only from Python");
    }
    struct Close {
      PyGraph* graph;
      std::string scope;
      std::vector<std::string> colocation;
      ~Close() {
        graph->here().scope = std::move(scope);
        graph->places().colocation = std::move(colocation);
      }
    } close{graph, graph->here().scope, graph->places().colocation};
    graph->here().scope = builder->context().scope;
    graph->places().colocation = builder->context().colocate_with;

    nb::list inputs;
    nb::list outputs;
    nb::list incoming;
    const auto tensor = [&](Expr e) {
      return graph->tensor(GraphBuilder::output(builder->import(e)));
    };
    for (int i = 0; i < context.num_inputs(); ++i) inputs.append(tensor(context.input(i)));
    for (int i = 0; i < context.num_outputs(); ++i) {
      outputs.append(tensor(context.output(i)));
      if (!has_gradients(context.output(i).dtype())) {
        incoming.append(nb::none());
      } else if (context.has_gradient(i)) {
        incoming.append(gradient_to_python(*graph, context.gradient_as_is(i)));
      } else {
        incoming.append(gradient_to_python(*graph, {context.gradient(i), {}, {}}));
      }
    }
    MR_TRY(builder->take_status());
    // Good until the rule returns.
    auto running = std::make_shared<bool>(true);
    nb::object attr = nb::cpp_function([running, &context](std::string_view key) {
      if (!*running)
        throw nb::value_error("the gradient rule that this operation was given to has returned");
      const AttrValue& value = context.attr_value(key);
      if (value.empty()) raise_value_error(invalid_argument("no attr named '", key, "'"));
      return attr_to_python(value);
    });
    struct Stop {
      bool& running;
      ~Stop() { running = false; }
    } stop{*running};
    DefaultGraph open(graph->python());
    nb::object results = library("millrace.graph.gradients", "call_rule")(
        rule, graph->python(), inputs, outputs, incoming, attr);
    int i = 0;
    for (nb::handle result : results) context.set(i++, gradient_from_python(*graph, result));
    return ok_status();
  } catch (nb::python_error& error) {
    if (differentiating.empty()) return status_from_exception(error);
    return differentiating.back()->pending.keep(error);
  }
}

// Rules live as long as the process.
GradientFunction rule_of(nb::handle rule) {
  nb::handle kept = rule.inc_ref();
  return [kept](GradientContext& context) { return call_rule(kept, context); };
}

// A rule that lives as long as `rule` does, which somebody else keeps: it may hold a graph.
std::string register_kept_gradient(const std::string& base, nb::handle rule) {
  auto name = std::make_shared<std::string>();
  nb::object forget = nb::cpp_function([name](nb::handle reference) {
    unregister_gradient(*name);
    reference.dec_ref();
  });
  PyObject* reference = PyWeakref_NewRef(rule.ptr(), forget.ptr());
  if (reference == nullptr) throw nb::python_error();
  *name = register_unique_gradient(base, [reference](GradientContext& context) {
    WithGil gil;
    nb::object alive = nb::handle(reference)();
    if (alive.is_none()) return not_found("the graph of this gradient is gone");
    return call_rule(alive, context);
  });
  return *name;
}

}  // namespace

void bind_gradients(nb::module_& m) {
  m.def("gradients", &add_gradients, nb::arg("graph"), nb::arg("ys"), nb::arg("xs"),
        nb::arg("grad_ys"), nb::arg("stop_gradients"), nb::arg("colocate"), nb::arg("gate"),
        nb::arg("recompute"), nb::arg("checkpoints"), nb::arg("memory_budget"),
        nb::arg("swap_memory"), nb::arg("zeros_for_unconnected"), nb::arg("name"));
  m.def("split_function", &split);
  m.def("register_gradient", [](const std::string& name, nb::handle rule) {
    check(register_gradient(name, rule_of(rule)));
  });
  m.def("register_kept_gradient", &register_kept_gradient);
  m.def("has_registered_gradient",
        [](std::string_view name) { return static_cast<bool>(find_gradient(name)); });
}

}  // namespace millrace::python
