#include "python/src/arguments.h"

#include <nanobind/stl/string.h>

#include <algorithm>

#include "python/src/array.h"
#include "python/src/eager_calls.h"
#include "python/src/eager_tensor.h"
#include "python/src/graph.h"
#include "python/src/origin.h"
#include "python/src/status.h"

namespace millrace::python {

void raise_type_error(const std::string& message) { raise_here(PyExc_TypeError, message); }

std::string type_label(DType dtype) {
  return nb::cast<std::string>(dtype_object(base_type(dtype)).attr("name"));
}

namespace {

[[noreturn]] void raise_value(const std::string& message) { raise_here(PyExc_ValueError, message); }

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

// A TypeError, which is an InvalidArgumentError too for an op that runs at once.
[[noreturn]] void raise_types(const std::string& message) {
  raise_here(runs_eagerly() ? library("millrace.core.errors", "MismatchedTypesError").ptr()
                            : PyExc_TypeError,
             message);
}

}  // namespace

void Arguments::read_input(const ArgDef& arg, nb::handle value) {
  if (!arg.is_list()) {
    const DType want = wanted(arg);
    nb::object tensor = convert(arg, value, want, preferred(arg));
    settle(arg, type_of(tensor), tensor);
    push(arg, tensor);
    return;
  }
  read_list(arg, value);
}

void Arguments::read_attr_value(const AttrDef& def, nb::handle value) {
  if (value.is_none() && !def.default_value.empty()) return;
  AttrValue attr = attr_from_python(op_.name, def, value);
  check_allowed(def, attr);
  attrs_.set(def.name, std::move(attr));
}

DType Arguments::wanted(const ArgDef& arg) const {
  if (arg.dtype != DType::kInvalid) return arg.dtype;
  const AttrValue* known = attrs_.find(arg.type_attr);
  return known != nullptr ? *known->get<DType>() : said_later(arg);
}

DType Arguments::preferred(const ArgDef& arg) const {
  const AttrDef* def = op_.find_attr(arg.type_attr);
  if (def == nullptr) return DType::kInvalid;
  const DType* type = def->default_value.get<DType>();
  return type != nullptr ? *type : DType::kInvalid;
}

nb::object Arguments::convert(const ArgDef& arg, nb::handle value, DType want, DType prefer) {
  if (is_tensor(value)) {
    if (want != DType::kInvalid && base_type(type_of(value)) != want) {
      raise_mismatch(arg, value, want);
    }
    return nb::borrow(value);
  }
  Tensor plain;
  const DType as = want != DType::kInvalid ? want : prefer;
  if (!arg.is_ref &&
      (tensor_from_scalar(value, as, plain) || tensor_from_numbers(value, as, plain))) {
    return make_constant(arg, std::move(plain));
  }
  nb::object made = convert_value(arg, value, want, prefer);
  if (want != DType::kInvalid && base_type(type_of(made)) != want) {
    raise_mismatch(arg, made, want);
  }
  return made;
}

nb::object Arguments::converted(const ArgDef& arg, nb::handle value, DType want,
                                DType prefer) const {
  return library("millrace.graph.convert", "convert_input")(
      value, want == DType::kInvalid ? nb::handle(Py_None) : dtype_object(want), arg.name,
      arg.is_ref, prefer == DType::kInvalid ? nb::handle(Py_None) : dtype_object(prefer),
      op_.name.c_str());
}

void Arguments::raise_mismatch(const ArgDef& arg, nb::handle value, DType want) const {
  std::string message = str_cat(name_, ": Input '", arg.name, "' of '", op_.name, "' Op has type ",
                                type_label(type_of(value)), " that does not match ");
  if (arg.dtype != DType::kInvalid) {
    raise_types(
        str_cat(message, "expected type of ", type_label(want), ". It is ", describe(value), "."));
  }
  for (const auto& [other, tensor] : read_) {
    if (other == &arg || other->type_attr != arg.type_attr) continue;
    raise_types(str_cat(message, "type ", type_label(want), " of argument '", other->name,
                        "'. They are ", describe(tensor), " and ", describe(value),
                        ": tf.cast changes the type of one; cannot compute ", op_.name,
                        " as input #", read_.size(), "(zero-based) was expected to be a ",
                        dtype_name(want), " tensor but is a ", dtype_name(type_of(value)),
                        " tensor."));
  }
  raise_types(str_cat(message, "type ", type_label(want), " of attr '", arg.type_attr, "'. It is ",
                      describe(value), "."));
}

void Arguments::settle(const ArgDef& arg, DType type, nb::handle tensor) {
  if (arg.is_ref && !is_ref(type)) {
    const std::string given = is_eager_tensor(tensor)
                                  ? describe(tensor)
                                  : str_cat("'", nb::cast<std::string>(tensor.attr("name")), "'");
    raise_type_error(str_cat("'", op_.name, "' Op \"", name_, "\" requires that input '", arg.name,
                             "' be a mutable tensor (e.g.: a tf.Variable), got ", given,
                             " of type ", type_label(type)));
  }
  if (arg.type_attr.empty() || attrs_.find(arg.type_attr) != nullptr) return;
  const AttrDef* def = op_.find_attr(arg.type_attr);
  if (def != nullptr) check_type(*def, arg.name, base_type(type), tensor);
  attrs_.set(arg.type_attr, base_type(type));
}

void Arguments::check_type(const AttrDef& def, std::string_view parameter, DType type,
                           nb::handle tensor) const {
  if (def.allowed_types.empty() || def.allowed_types.contains(type)) return;
  raise_types(str_cat("Value passed to parameter '", parameter, "' of '", op_.name, "' Op \"",
                      name_, "\" has DataType ", type_label(type),
                      " not in list of allowed values: ", label(def.allowed_types),
                      tensor.is_valid() ? str_cat(". It is ", describe(tensor), ".") : ""));
}

void Arguments::check_allowed(const AttrDef& def, const AttrValue& value) const {
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

void Arguments::read_list(const ArgDef& arg, nb::handle value) {
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
void Arguments::read_numbered(const ArgDef& arg, Py_ssize_t count, const Item& item,
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
void Arguments::raise_list_mismatch(const ArgDef& arg, Py_ssize_t count, const Item& item,
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

void Arguments::raise_length(const ArgDef& arg, int64_t count, int64_t minimum) const {
  raise_value(str_cat("List argument '", arg.name, "' to '", op_.name, "' Op with length ", count,
                      " must be at least length ", minimum, "."));
}

nb::object Arguments::convert_item(const ArgDef& arg, nb::handle value, Py_ssize_t i, DType want) {
  if (is_tensor(value)) return nb::borrow(value);
  ArgDef item = arg;
  item.name = str_cat(arg.name, "_", static_cast<int64_t>(i));
  return convert(item, value, want, preferred(arg));
}

void Arguments::read(const PyOp& op, bool second_first) {
  const size_t num_inputs = op_.inputs.size();
  const auto argument = [&](size_t i) {
    return nb::handle(PyTuple_GET_ITEM(arguments_.ptr(), static_cast<Py_ssize_t>(i)));
  };
  // Attributes first: some say the types of the inputs.
  for (size_t i = 0; i < op.attrs.size(); ++i) {
    read_attr_value(*op.attrs[i], argument(num_inputs + i));
  }
  if (second_first) {
    read_input(op_.inputs[1], argument(1));
    read_input(op_.inputs[0], argument(0));
    swap_inputs();
  } else {
    for (size_t i = 0; i < num_inputs; ++i) read_input(op_.inputs[i], argument(i));
  }
}

void check_arguments(const PyOp& op, nb::handle arguments) {
  const size_t expected = op.def->inputs.size() + op.attrs.size();
  if (!PyTuple_Check(arguments.ptr()) ||
      static_cast<size_t>(PyTuple_GET_SIZE(arguments.ptr())) != expected) {
    raise_type_error(str_cat(op.def->name, ": expected ", expected, " arguments"));
  }
}

nb::object shape_results(PyOp& op, const AttrMap& attrs, nb::handle operation,
                         FunctionRef<nb::object(int)> output) {
  const std::vector<ArgDef>& outputs = op.def->outputs;
  if (outputs.empty()) return nb::borrow(operation);
  if (outputs.size() == 1 && !outputs[0].is_list()) return output(0);
  nb::list parts;
  int next = 0;
  for (const ArgDef& arg : outputs) {
    int64_t count = 1;
    if (!arg.number_attr.empty()) count = unwrap(read_attr<int64_t>(attrs, arg.number_attr));
    if (!arg.type_list_attr.empty()) {
      count = static_cast<int64_t>(
          unwrap(read_attr<std::vector<DType>>(attrs, arg.type_list_attr)).size());
    }
    if (!arg.is_list()) {
      parts.append(output(next++));
      continue;
    }
    nb::list tensors;
    for (int64_t i = 0; i < count; ++i) tensors.append(output(next++));
    parts.append(tensors);
  }
  if (outputs.size() == 1) {
    nb::object only = parts[0];
    // An op of a list of no outputs is run for what it does.
    return nb::len(only) == 0 ? nb::borrow(operation) : only;
  }
  if (!op.result_class.is_valid()) {
    nb::list names;
    for (const ArgDef& arg : outputs) names.append(arg.name);
    op.result_class = library("millrace.graph.operation", "result_class")(op.def->name, names);
  }
  return op.result_class(*nb::tuple(parts));
}

}  // namespace millrace::python
