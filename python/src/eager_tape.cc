#include "python/src/eager_tape.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "python/src/eager_calls.h"
#include "python/src/eager_tensor.h"
#include "python/src/gil.h"
#include "python/src/graph.h"
#include "python/src/status.h"

// The tape for Python, and gradients that are written in Python.

namespace millrace::python {

namespace {

using eager::EagerGradient;
using eager::TensorRef;

TensorRef tensor_from_python(nb::handle value) {
  if (!is_eager_tensor(value)) {
    throw nb::type_error("expected a tensor that has a value, such as tf.constant gives");
  }
  return TensorRef(&eager_tensor(value));
}

// A gradient as Python has it: None, a tensor, or (values, indices, dense_shape or None).
EagerGradient gradient_from_python(nb::handle value) {
  if (value.is_none()) return {};
  if (is_eager_tensor(value)) return {tensor_from_python(value), nullptr, nullptr};
  const nb::tuple parts = nb::cast<nb::tuple>(value);
  EagerGradient rows = {tensor_from_python(parts[0]), tensor_from_python(parts[1]), nullptr};
  if (!parts[2].is_none()) rows.dense_shape = tensor_from_python(parts[2]);
  return rows;
}

nb::object gradient_to_python(EagerGradient gradient) {
  const auto object = [](TensorRef tensor) {
    return tensor ? wrap_eager(std::move(tensor)) : nb::none();
  };
  if (!gradient.is_slices()) return object(std::move(gradient.values));
  return nb::make_tuple(object(std::move(gradient.values)), object(std::move(gradient.indices)),
                        object(std::move(gradient.dense_shape)));
}

// What a rule in Python raised while this thread computes gradients.
thread_local PendingException* pending = nullptr;

Status keep(nb::python_error& error) {
  return pending != nullptr ? pending->keep(error) : status_from_exception(error);
}

// A function of Python's: function(*gradients of the outputs) gives those of the inputs.
class PyBackward final : public eager::Backward {
 public:
  explicit PyBackward(nb::object function) : function_(function.release().ptr()) {}

  Result<std::vector<EagerGradient>> gradients(std::span<const EagerGradient> outputs) override {
    const WithGil gil;
    try {
      nb::list incoming;
      for (const EagerGradient& g : outputs) incoming.append(gradient_to_python(g));
      std::vector<EagerGradient> out;
      for (nb::handle g : nb::handle(function_)(*nb::tuple(incoming))) {
        out.push_back(gradient_from_python(g));
      }
      return out;
    } catch (nb::python_error& error) {
      return keep(error);
    } catch (std::exception& error) {
      return internal(error.what());
    }
  }

 protected:
  ~PyBackward() override {
    if (interpreter_ends()) return;
    const WithGil gil;
    Py_DECREF(function_);
  }

 private:
  PyObject* function_;  // owned
};

struct PyTape {
  PyTape(bool persistent, bool watch_accessed_variables)
      : tape({.persistent = persistent, .watch_accessed_variables = watch_accessed_variables}) {}
  eager::Tape tape;

  std::vector<TensorRef> tensors(const std::vector<nb::object>& given) const {
    std::vector<TensorRef> out;
    for (const nb::object& tensor : given) out.push_back(tensor_from_python(tensor));
    return out;
  }

  nb::list gradient(const std::vector<nb::object>& targets, const std::vector<nb::object>& sources,
                    const std::vector<nb::object>& output_gradients, bool zeros, bool again) {
    const std::vector<TensorRef> ys = tensors(targets), xs = tensors(sources);
    std::vector<EagerGradient> incoming;
    for (const nb::object& g : output_gradients) incoming.push_back(gradient_from_python(g));
    PendingException raised;
    PendingException* const before = std::exchange(pending, &raised);
    Result<std::vector<EagerGradient>> found = [&] {
      const WithoutGil without;
      return tape.gradient(eager_context(), ys, xs, incoming,
                           {.zeros_for_unconnected = zeros, .again = again});
    }();
    pending = before;
    raised.rethrow();
    const Code code = found.status().code();
    if (!found.ok() && (code == Code::kNotFound || code == Code::kFailedPrecondition)) {
      // No rule, or a tape that is used up.
      PyErr_SetString(code == Code::kNotFound ? PyExc_LookupError : PyExc_RuntimeError,
                      std::string(found.status().message()).c_str());
      throw nb::python_error();
    }
    check_eager(found.status());
    nb::list out;
    for (EagerGradient& g : *found) out.append(gradient_to_python(std::move(g)));
    return out;
  }
};

nb::list record_operation(const std::vector<nb::object>& inputs,
                          const std::vector<nb::object>& outputs, nb::object backward) {
  std::vector<TensorRef> from, to;
  for (const nb::object& input : inputs) from.push_back(tensor_from_python(input));
  for (const nb::object& output : outputs) {
    // A tensor of its own: what the function gave back may have come from elsewhere.
    eager::EagerTensor& made = eager_tensor(output);
    to.push_back(make_ref<eager::EagerTensor>(made.tensor(), made.device()));
  }
  eager::record_operation(from, to, make_ref<PyBackward>(std::move(backward)));
  nb::list out;
  for (TensorRef& output : to) out.append(wrap_eager(std::move(output)));
  return out;
}

// `with StopRecording():`
struct PyStopRecording {
  PyStopRecording() = default;
  PyStopRecording(const PyStopRecording&) = delete;
  PyStopRecording& operator=(const PyStopRecording&) = delete;
  std::vector<std::unique_ptr<eager::StopRecording>> open;
};

}  // namespace

Status call_eager_rule(nb::handle rule, GradientContext& context) {
  auto& builder = static_cast<eager::Builder&>(context.builder());
  const WithGil gil;
  try {
    const auto object = [&](Expr e) { return wrap_eager(unwrap(builder.tensor(e))); };
    nb::list inputs, outputs, incoming;
    for (int i = 0; i < context.num_inputs(); ++i) inputs.append(object(context.input(i)));
    for (int i = 0; i < context.num_outputs(); ++i) {
      outputs.append(object(context.output(i)));
      if (!has_gradients(context.output(i).dtype())) {
        incoming.append(nb::none());
      } else if (context.has_gradient(i) && context.gradient_as_is(i).is_slices()) {
        const Gradient& rows = context.gradient_as_is(i);
        incoming.append(
            nb::make_tuple(object(rows.values), object(rows.indices),
                           rows.dense_shape.valid() ? object(rows.dense_shape) : nb::none()));
      } else {
        incoming.append(object(context.gradient(i)));
      }
    }
    nb::object attr = nb::cpp_function([&context](std::string_view key) {
      const AttrValue& value = context.attr_value(key);
      if (value.empty()) raise_value_error(invalid_argument("no attr named '", key, "'"));
      return attr_to_python(value);
    });
    nb::object results =
        library("millrace.eager.rules", "call_rule")(rule, inputs, outputs, incoming, attr);
    int i = 0;
    for (nb::handle result : results) {
      context.set(i++, builder.gradient(gradient_from_python(result)));
    }
    return ok_status();
  } catch (nb::python_error& error) {
    return keep(error);
  }
}

void bind_eager_tape(nb::module_& m) {
  nb::class_<PyTape>(m, "Tape")
      .def(nb::init<bool, bool>(), nb::arg("persistent"), nb::arg("watch_accessed_variables"))
      .def("start", [](PyTape& self) { self.tape.start(); })
      .def("stop", [](PyTape& self) { self.tape.stop(); })
      .def("reset", [](PyTape& self) { self.tape.reset(); })
      .def_prop_ro("recording", [](PyTape& self) { return self.tape.recording(); })
      .def("watch",
           [](PyTape& self, nb::handle tensor) { self.tape.watch(*tensor_from_python(tensor)); })
      .def("watched",
           [](PyTape& self, nb::handle tensor) {
             return self.tape.watched(*tensor_from_python(tensor));
           })
      .def("gradient", &PyTape::gradient, nb::arg("targets"), nb::arg("sources"),
           nb::arg("output_gradients"), nb::arg("zeros"), nb::arg("again") = false);
  m.def("variable_accessed",
        [](nb::handle handle) { eager::variable_accessed(*tensor_from_python(handle)); });
  m.def("any_tape", [] { return eager::Tape::innermost() != nullptr; });
  m.def("orders_followed", [](nb::list inputs) {
    std::vector<TensorRef> tensors;
    for (nb::handle input : inputs) tensors.push_back(tensor_from_python(input));
    std::vector<bool> followed;
    const int orders = eager::orders_followed(tensors, followed);
    return nb::make_tuple(orders, followed);
  });
  m.def("record_operation", &record_operation);
  nb::class_<PyStopRecording>(m, "StopRecording")
      .def(nb::init<>())
      .def("__enter__",
           [](PyStopRecording& self) {
             self.open.push_back(std::make_unique<eager::StopRecording>());
           })
      .def("__exit__", [](PyStopRecording& self, nb::args) { self.open.pop_back(); });
}

}  // namespace millrace::python
