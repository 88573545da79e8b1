#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>

#include "python/src/array.h"
#include "python/src/calls.h"
#include "python/src/elements.h"
#include "python/src/origin.h"
#include "python/src/scope.h"
#include "python/src/status.h"

// Calls of ops that become operations of a graph: values become tensors, attributes are worked out,
// the outputs come back in the form the op's function returns.

namespace millrace::python {

namespace {

[[noreturn]] void raise_type_error(const std::string& message) {
  raise_here(PyExc_TypeError, message);
}
[[noreturn]] void raise_value(const std::string& message) { raise_here(PyExc_ValueError, message); }

// The name that Python programs know a type by.
std::string type_label(DType dtype) {
  return nb::cast<std::string>(dtype_object(base_type(dtype)).attr("name"));
}

std::string label(TypeSet types) {
  std::string out;
  for (int n = 1; n < kNumDTypes; ++n) {
    const auto dtype = static_cast<DType>(n);
    if (!types.contains(dtype)) continue;
    if (!out.empty()) out += ", ";
    out += type_label(dtype);
  }
  return out;
}

NodeId add_constant(PyGraph& graph, Tensor value, std::string name) {
  const DType dtype = value.dtype();
  return graph.add("Const", std::move(name), {},
                   {{"value", AttrValue(std::move(value))}, {"dtype", dtype}});
}

// One call: reads the arguments one after another.
class Call {
 public:
  Call(const PyOp& op, PyGraph& graph, std::string name, nb::handle arguments)
      : op_(*op.def), graph_(graph), name_(std::move(name)), arguments_(arguments) {}

  void read_input(const ArgDef& arg, nb::handle value) {
    if (!arg.is_list()) {
      const DType want = wanted(arg);
      nb::object tensor = convert(arg, value, want, preferred(arg));
      settle(arg, type_of(tensor), tensor);
      push(arg, tensor);
      return;
    }
    read_list(arg, value);
  }

  void read_attr_value(const AttrDef& def, nb::handle value) {
    if (value.is_none() && !def.default_value.empty()) return;
    AttrValue attr = attr_from_python(op_.name, def, value);
    check_allowed(def, attr);
    attrs_.set(def.name, std::move(attr));
  }

  // The two inputs of a binary op that were read in the other order.
  void swap_inputs() { std::swap(inputs_[0], inputs_[1]); }

  NodeId add() { return graph_.add(op_.name, name_, std::move(inputs_), std::move(attrs_)); }

 private:
  // The type an argument must have; kInvalid when it may still be any.
  DType wanted(const ArgDef& arg) const {
    if (arg.dtype != DType::kInvalid) return arg.dtype;
    const AttrValue* known = attrs_.find(arg.type_attr);
    return known != nullptr ? *known->get<DType>() : DType::kInvalid;
  }
  // The type to prefer for values that do not say theirs.
  DType preferred(const ArgDef& arg) const {
    const AttrDef* def = op_.find_attr(arg.type_attr);
    if (def == nullptr) return DType::kInvalid;
    const DType* type = def->default_value.get<DType>();
    return type != nullptr ? *type : DType::kInvalid;
  }

  nb::object convert(const ArgDef& arg, nb::handle value, DType want, DType prefer) {
    if (is_tensor(value)) {
      if (want != DType::kInvalid && base_type(type_of(value)) != want) {
        raise_mismatch(arg, value, want);
      }
      return nb::borrow(value);
    }
    Tensor scalar;
    const DType as = want != DType::kInvalid ? want : prefer;
    if (!arg.is_ref && tensor_from_scalar(value, as, scalar)) {
      const NodeId id = add_constant(graph_, std::move(scalar),
                                     graph_.graph().unique_name(str_cat(name_, "/", arg.name)));
      return graph_.tensor({id, 0});
    }
    DefaultGraph open(graph_.python());
    ScopeGuard scope(graph_, name_ + "/");
    nb::object made = library("millrace.graph.convert", "convert_input")(
        value, want == DType::kInvalid ? nb::handle(Py_None) : dtype_object(want), arg.name,
        arg.is_ref, prefer == DType::kInvalid ? nb::handle(Py_None) : dtype_object(prefer),
        op_.name.c_str());
    if (want != DType::kInvalid && base_type(type_of(made)) != want) {
      raise_mismatch(arg, made, want);
    }
    return made;
  }

  // "'x:0' (float32, shape [2,3])" of a tensor; the value itself where it is none.
  static std::string describe(nb::handle value) {
    if (!is_tensor(value)) return nb::cast<std::string>(nb::repr(value));
    const Output output = output_of(value);
    const Graph& graph = graph_of(value).graph();
    return str_cat("'", graph.output_name(output), "' (", type_label(graph.output_type(output)),
                   ", shape ", graph.facts(output).shape, ")");
  }

  [[noreturn]] void raise_mismatch(const ArgDef& arg, nb::handle value, DType want) const {
    std::string message =
        str_cat(name_, ": Input '", arg.name, "' of '", op_.name, "' Op has type ",
                type_label(type_of(value)), " that does not match ");
    if (arg.dtype != DType::kInvalid) {
      raise_type_error(str_cat(message, "expected type of ", type_label(want), ". It is ",
                               describe(value), "."));
    }
    for (const auto& [other, tensor] : read_) {
      if (other == &arg || other->type_attr != arg.type_attr) continue;
      raise_type_error(str_cat(message, "type ", type_label(want), " of argument '", other->name,
                               "'. They are ", describe(tensor), " and ", describe(value),
                               ": tf.cast changes the type of one."));
    }
    raise_type_error(str_cat(message, "type ", type_label(want), " of attr '", arg.type_attr,
                             "'. It is ", describe(value), "."));
  }

  // The type attribute of `arg` is `type` from now on.
  void settle(const ArgDef& arg, DType type, nb::handle tensor) {
    if (arg.is_ref && !is_ref(type)) {
      raise_type_error(str_cat("'", op_.name, "' Op \"", name_, "\" requires that input '",
                               arg.name, "' be a mutable tensor (e.g.: a tf.Variable), got '",
                               nb::cast<std::string>(tensor.attr("name")), "' of type ",
                               type_label(type)));
    }
    if (arg.type_attr.empty() || attrs_.find(arg.type_attr) != nullptr) return;
    const AttrDef* def = op_.find_attr(arg.type_attr);
    if (def != nullptr) check_type(*def, arg.name, base_type(type), tensor);
    attrs_.set(arg.type_attr, base_type(type));
  }

  // `tensor`: what has the type; none for the value of an attribute.
  void check_type(const AttrDef& def, std::string_view parameter, DType type,
                  nb::handle tensor = {}) const {
    if (def.allowed_types.empty() || def.allowed_types.contains(type)) return;
    raise_type_error(str_cat("Value passed to parameter '", parameter, "' of '", op_.name,
                             "' Op \"", name_, "\" has DataType ", type_label(type),
                             " not in list of allowed values: ", label(def.allowed_types),
                             tensor.is_valid() ? str_cat(". It is ", describe(tensor), ".") : ""));
  }

  void check_allowed(const AttrDef& def, const AttrValue& value) const {
    if (const DType* type = value.get<DType>()) check_type(def, def.name, *type);
    if (const auto* types = value.get<std::vector<DType>>()) {
      for (DType type : *types) check_type(def, def.name, type);
    }
    const auto* text = value.get<std::string>();
    if (text != nullptr && !def.allowed_strings.empty() &&
        std::find(def.allowed_strings.begin(), def.allowed_strings.end(), *text) ==
            def.allowed_strings.end()) {
      raise_value(str_cat("Attr '", def.name, "' of '", op_.name, "' Op passed string '", *text,
                          "' not in: \"", str_join(def.allowed_strings, "\", \""), "\"."));
    }
    const auto* number = value.get<int64_t>();
    if (number != nullptr && def.has_minimum && *number < def.minimum) {
      raise_value(str_cat("Attr '", def.name, "' of '", op_.name, "' Op passed ", *number,
                          " less than minimum ", def.minimum, "."));
    }
  }

  void push(const ArgDef& arg, nb::handle tensor) {
    if (!can_import(graph_, tensor)) raise_other_graph(tensor);
    const Output output = import_tensor(graph_, tensor);
    if (arg.is_ref && !is_ref(graph_.graph().output_type(output))) {
      raise_type_error(
          str_cat("'", op_.name, "' Op requires that input '", arg.name, "' be a mutable tensor"));
    }
    inputs_.push_back(output);
    read_.emplace_back(&arg, nb::borrow(tensor));
  }

  // A tensor and another argument are of graphs that have nothing to do with each other.
  [[noreturn]] void raise_other_graph(nb::handle tensor) const {
    nb::object message = library("millrace.graph.other_graph", "other_graph_message")(
        tensor, graph_.python(), arguments_);
    PyErr_SetObject(PyExc_ValueError, message.ptr());
    throw nb::python_error();
  }

  void read_list(const ArgDef& arg, nb::handle value) {
    if (!PyList_Check(value.ptr()) && !PyTuple_Check(value.ptr())) {
      PyErr_Format(PyExc_TypeError, "Expected list for '%s' argument to '%s' Op, not %R.",
                   arg.name.c_str(), op_.name.c_str(), value.ptr());
      throw nb::python_error();
    }
    nb::object sequence = nb::steal(PySequence_Fast(value.ptr(), "a list"));
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence.ptr());
    const auto item = [&](Py_ssize_t i) {
      return nb::handle(PySequence_Fast_GET_ITEM(sequence.ptr(), i));
    };
    std::vector<nb::object> tensors;
    if (!arg.type_list_attr.empty()) {
      const AttrValue* given = attrs_.find(arg.type_list_attr);
      std::vector<DType> types;
      if (given != nullptr)
        types = unwrap_value(read_attr<std::vector<DType>>(attrs_, arg.type_list_attr));
      if (given != nullptr && types.size() != static_cast<size_t>(count)) {
        raise_value(str_cat("'", op_.name, "' Op: argument '", arg.name, "' has ", count,
                            " tensors, but '", arg.type_list_attr, "' says ", types.size()));
      }
      for (Py_ssize_t i = 0; i < count; ++i) {
        tensors.push_back(convert_item(
            arg, item(i), i, given != nullptr ? types[static_cast<size_t>(i)] : DType::kInvalid));
      }
      if (given == nullptr) {
        for (const nb::object& t : tensors) types.push_back(base_type(type_of(t)));
        if (const AttrDef* def = op_.find_attr(arg.type_list_attr)) {
          if (def->has_minimum && count < def->minimum) raise_length(arg, count, def->minimum);
          for (DType type : types) check_type(*def, arg.name, type);
        }
        attrs_.set(arg.type_list_attr, std::move(types));
      }
    } else {
      read_numbered(arg, count, item, tensors);
    }
    for (const nb::object& t : tensors) push(arg, t);
  }

  template <class Item>
  void read_numbered(const ArgDef& arg, Py_ssize_t count, const Item& item,
                     std::vector<nb::object>& tensors) {
    const AttrDef* length = op_.find_attr(arg.number_attr);
    if (const AttrValue* given = attrs_.find(arg.number_attr)) {
      if (*given->get<int64_t>() != count) {
        raise_value(str_cat("List argument '", arg.name, "' to '", op_.name, "' Op with length ",
                            count, " must match length ", *given->get<int64_t>(),
                            " of the arguments before it."));
      }
    } else {
      if (length != nullptr && length->has_minimum && count < length->minimum) {
        raise_length(arg, count, length->minimum);
      }
      attrs_.set(arg.number_attr, static_cast<int64_t>(count));
    }
    DType want = wanted(arg);
    for (Py_ssize_t i = 0; want == DType::kInvalid && i < count; ++i) {
      // A tensor among the values tells the type of the others.
      nb::object type = nb::getattr(item(i), "dtype", nb::none());
      if (is_tensor(item(i)) || nb::hasattr(item(i), "_as_graph_element"))
        want = base_type(dtype_from_object(type));
    }
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (is_tensor(item(i)) && want != DType::kInvalid && base_type(type_of(item(i))) != want) {
        raise_list_mismatch(arg, count, item, want);
      }
      tensors.push_back(convert_item(arg, item(i), i, want));
      if (want == DType::kInvalid) want = base_type(type_of(tensors.back()));
    }
    if (!tensors.empty()) {
      settle(arg, type_of(tensors[0]), tensors[0]);
    } else if (!arg.type_attr.empty() && attrs_.find(arg.type_attr) == nullptr &&
               preferred(arg) != DType::kInvalid) {
      attrs_.set(arg.type_attr, preferred(arg));
    }
  }

  template <class Item>
  [[noreturn]] void raise_list_mismatch(const ArgDef& arg, Py_ssize_t count, const Item& item,
                                        DType want) const {
    std::string types, values;
    for (Py_ssize_t i = 0; i < count; ++i) {
      const std::string_view comma = i > 0 ? ", " : "";
      nb::object type = nb::getattr(item(i), "dtype", nb::none());
      types +=
          str_cat(comma, type.is_none() ? "<not a tensor>" : type_label(dtype_from_object(type)));
      if (i < 8) values += str_cat(comma, describe(item(i)));
    }
    const bool fixed = arg.dtype != DType::kInvalid;
    raise_type_error(str_cat(
        "Tensors in list passed to '", arg.name, "' of '", op_.name, "' Op have types [", types,
        fixed ? str_cat("] that do not match expected type ", type_label(want), ".")
              : "] that don't all match.",
        " They are ", values, count > 8 ? ", ...: " : ": ", "tf.cast changes the type of one."));
  }

  [[noreturn]] void raise_length(const ArgDef& arg, int64_t count, int64_t minimum) const {
    raise_value(str_cat("List argument '", arg.name, "' to '", op_.name, "' Op with length ", count,
                        " must be at least length ", minimum, "."));
  }

  nb::object convert_item(const ArgDef& arg, nb::handle value, Py_ssize_t i, DType want) {
    if (is_tensor(value)) return nb::borrow(value);
    ArgDef item = arg;
    item.name = str_cat(arg.name, "_", static_cast<int64_t>(i));
    return convert(item, value, want, preferred(arg));
  }

  const OpDef& op_;
  PyGraph& graph_;
  std::string name_;
  nb::handle arguments_;
  std::vector<Output> inputs_;
  std::vector<std::pair<const ArgDef*, nb::object>> read_;  // what the inputs were
  AttrMap attrs_;
};

// The graph that an operation on these arguments belongs to: the default one, unless a tensor is of
// another graph that is none of those around it.
PyGraph& graph_for(PyGraph& current, nb::handle value, PyGraph* found, int depth = 0) {
  if (is_tensor(value)) {
    PyGraph& own = graph_of(value);
    // Nothing can be added to a finished body: import_tensor() says what to do, or finds its twin.
    if (!own.detached() && !own.is_ancestor_of(found != nullptr ? *found : current)) return own;
  } else if (depth == 0 && (PyList_Check(value.ptr()) || PyTuple_Check(value.ptr()))) {
    for (nb::handle item : value) {
      PyGraph& own = graph_for(current, item, found, 1);
      if (&own != (found != nullptr ? found : &current)) return own;
    }
  }
  return found != nullptr ? *found : current;
}

nb::object results(PyOp& op, PyGraph& graph, NodeId id) {
  const std::vector<ArgDef>& outputs = op.def->outputs;
  nb::object operation = graph.operation(id);
  if (outputs.empty()) return operation;
  if (outputs.size() == 1 && !outputs[0].is_list()) return graph.tensor({id, 0});
  const Node& node = graph.graph().node(id);
  nb::list parts;
  int next = 0;
  for (const ArgDef& arg : outputs) {
    int64_t count = 1;
    if (!arg.number_attr.empty()) count = unwrap(node.attr<int64_t>(arg.number_attr));
    if (!arg.type_list_attr.empty()) {
      count =
          static_cast<int64_t>(unwrap(node.attr<std::vector<DType>>(arg.type_list_attr)).size());
    }
    if (!arg.is_list()) {
      parts.append(graph.tensor({id, next++}));
      continue;
    }
    nb::list tensors;
    for (int64_t i = 0; i < count; ++i) tensors.append(graph.tensor({id, next++}));
    parts.append(tensors);
  }
  if (outputs.size() == 1) {
    nb::object only = parts[0];
    // An op of a list of no outputs is run for what it does.
    return nb::len(only) == 0 ? operation : only;
  }
  if (!op.result_class.is_valid()) {
    nb::list names;
    for (const ArgDef& arg : outputs) names.append(arg.name);
    op.result_class = library("millrace.graph.operation", "result_class")(op.def->name, names);
  }
  return op.result_class(*nb::tuple(parts));
}

nb::object add_operation(PyOp& op, nb::handle name, nb::handle arguments, bool second_first) {
  const size_t num_inputs = op.def->inputs.size();
  if (!PyTuple_Check(arguments.ptr()) ||
      static_cast<size_t>(PyTuple_GET_SIZE(arguments.ptr())) != num_inputs + op.attrs.size()) {
    raise_type_error(
        str_cat(op.def->name, ": expected ", num_inputs + op.attrs.size(), " arguments"));
  }
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
  Call made(op, *graph, full_name(*graph, own_name), arguments);
  // Attributes first: some say the types of the inputs.
  for (size_t i = 0; i < op.attrs.size(); ++i)
    made.read_attr_value(*op.attrs[i], argument(num_inputs + i));
  if (second_first) {
    made.read_input(op.def->inputs[1], argument(1));
    made.read_input(op.def->inputs[0], argument(0));
    made.swap_inputs();
  } else {
    for (size_t i = 0; i < num_inputs; ++i) made.read_input(op.def->inputs[i], argument(i));
  }
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
