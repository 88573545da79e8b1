#include "python/src/eager_tensor.h"

#include <nanobind/stl/string.h>
#include <structmember.h>

#include "python/src/array.h"
#include "python/src/eager_calls.h"
#include "python/src/graph.h"
#include "python/src/origin.h"
#include "python/src/status.h"

namespace millrace::python {

namespace {

struct Object {
  PyObject_HEAD eager::EagerTensor* tensor;  // owns one count
  PyObject* weak_references;
};

PyTypeObject* eager_type = nullptr;

Object* object_of(PyObject* self) { return reinterpret_cast<Object*>(self); }

void dealloc(PyObject* self) {
  if (object_of(self)->weak_references != nullptr) PyObject_ClearWeakRefs(self);
  eager::EagerTensor* tensor = object_of(self)->tensor;
  PyTypeObject* type = Py_TYPE(self);
  PyObject_Free(self);
  Py_DECREF(type);
  if (tensor != nullptr) tensor->release();
}

// Calls `body`, with C++ exceptions as Python's.
template <class Body>
PyObject* guarded(const Body& body) {
  try {
    return body();
  } catch (nb::python_error& error) {
    error.restore();
  } catch (std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

PyObject* get_dtype(PyObject* self, void*) {
  return guarded([&] { return dtype_object(eager_tensor(self).dtype()).inc_ref().ptr(); });
}

PyObject* get_shape_tuple(PyObject* self, PyObject*) {
  const Shape& shape = eager_tensor(self).shape();
  PyObject* sizes = PyTuple_New(shape.rank());
  if (sizes == nullptr) return nullptr;
  for (int i = 0; i < shape.rank(); ++i) {
    PyObject* size = PyLong_FromLongLong(shape.dim(i));
    if (size == nullptr) {
      Py_DECREF(sizes);
      return nullptr;
    }
    PyTuple_SET_ITEM(sizes, i, size);
  }
  return sizes;
}

PyObject* get_ndim(PyObject* self, void*) {
  return PyLong_FromLong(eager_tensor(self).shape().rank());
}

PyObject* get_device(PyObject* self, void*) {
  return guarded([&] {
    const std::string& name = eager_tensor(self).device().name();
    return PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size()));
  });
}

PyObject* get_id(PyObject* self, void*) { return PyLong_FromVoidPtr(&eager_tensor(self)); }

// A copy of the elements: NumPy's user may write to it.
PyObject* numpy(PyObject* self, PyObject*) {
  return guarded([&] {
    Tensor host = unwrap(eager_context().to_host(eager_tensor(self)));
    return array_from_tensor(host).release().ptr();
  });
}

// The elements for who reads memory itself: a copy that nobody writes to.
int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const bool ok =
      guarded([&]() -> PyObject* {
        const DType type = eager_tensor(self).dtype();
        if (type == DType::kResource || type == DType::kVariant) {
          PyErr_Format(PyExc_BufferError, "Cannot convert a tensor of type %s to a buffer",
                       std::string(dtype_name(type)).c_str());
          return nullptr;
        }
        if ((flags & PyBUF_WRITABLE) != 0) {
          PyErr_SetString(PyExc_BufferError, "tensors cannot be written to");
          return nullptr;
        }
        Tensor host = unwrap(eager_context().to_host(eager_tensor(self)));
        const nb::object array = library("numpy", "asarray")(array_from_tensor(host));
        if (PyObject_GetBuffer(array.ptr(), view, flags) != 0) return nullptr;
        view->readonly = 1;
        return Py_None;
      }) != nullptr;
  if (!ok) view->obj = nullptr;
  return ok ? 0 : -1;
}

// Python's operators that are one op. What is not plain goes the way that tensors of all kinds go.
struct Binary {
  const char* op;
  const char* method;
  const char* reflected;
};
constexpr Binary kAdd = {"AddV2", "__add__", "__radd__"};
constexpr Binary kSub = {"Sub", "__sub__", "__rsub__"};
constexpr Binary kMul = {"Mul", "__mul__", "__rmul__"};
constexpr Binary kFloorDiv = {"FloorDiv", "__floordiv__", "__rfloordiv__"};
constexpr Binary kMod = {"FloorMod", "__mod__", "__rmod__"};
constexpr Binary kPow = {"Pow", "__pow__", "__rpow__"};
constexpr Binary kDivide = {"RealDiv", "__truediv__", "__rtruediv__"};
constexpr Binary kMatMul = {"MatMul", "__matmul__", "__rmatmul__"};
constexpr Binary kAnd = {nullptr, "__and__", "__rand__"};
constexpr Binary kOr = {nullptr, "__or__", "__ror__"};
constexpr Binary kXor = {nullptr, "__xor__", "__rxor__"};

bool is_real_number(DType type) { return type == DType::kFloat || type == DType::kDouble; }

PyObject* call_method(PyObject* a, PyObject* b, const char* method, const char* reflected) {
  const nb::handle methods = library("millrace.core.tensor", "TensorOperators");
  const bool first = is_eager_tensor(a);
  nb::object f = methods.attr(first ? method : reflected);
  return (first ? f(nb::handle(a), nb::handle(b)) : f(nb::handle(b), nb::handle(a)))
      .release()
      .ptr();
}

template <const Binary& kind>
PyObject* binary(PyObject* a, PyObject* b) {
  return guarded([&]() -> PyObject* {
    // Of a variable the value.
    nb::object read;
    if (runs_eagerly() && (read = read_variable(is_eager_tensor(a) ? b : a)).is_valid()) {
      (is_eager_tensor(a) ? b : a) = read.ptr();
    }
    if constexpr (kind.op != nullptr) {
      static const eager::Op& op = *new eager::Op(unwrap(eager_context().op(kind.op)));
      // Division of integers gives real numbers; Python's functions know which.
      const bool division = &kind == &kDivide, matmul = &kind == &kMatMul;
      if (runs_eagerly()) {
        eager::TensorRef made;
        const bool left = is_eager_tensor(a), right = is_eager_tensor(b);
        const DType type = eager_tensor(left ? a : b).dtype();
        if (is_real_number(type) ||
            (!division && !matmul && is_plain(type) && type != DType::kBool)) {
          eager::EagerTensor* inputs[2];
          eager::TensorRef scalar;
          bool plain = left && right;
          if (plain) {
            inputs[0] = &eager_tensor(a);
            inputs[1] = &eager_tensor(b);
            plain = inputs[1]->dtype() == type;
            if (matmul) plain &= inputs[0]->shape().rank() == 2 && inputs[1]->shape().rank() == 2;
          } else {
            Tensor value;
            plain = !matmul && tensor_from_scalar(left ? b : a, type, value);
            if (plain) {
              scalar = eager_context().tensor(std::move(value));
              inputs[left ? 0 : 1] = &eager_tensor(left ? a : b);
              inputs[left ? 1 : 0] = scalar.get();
            }
          }
          if (plain) {
            run_binary(op, inputs, made);
            return wrap_eager(std::move(made)).release().ptr();
          }
        }
      }
    }
    return call_method(a, b, kind.method, kind.reflected);
  });
}

PyObject* power(PyObject* a, PyObject* b, PyObject*) { return binary<kPow>(a, b); }

template <const char* const& name>
PyObject* unary(PyObject* self) {
  return guarded([&] {
    return library("millrace.core.tensor", "TensorOperators")
        .attr(name)(nb::handle(self))
        .release()
        .ptr();
  });
}
constexpr const char* kNeg = "__neg__";
constexpr const char* kAbs = "__abs__";
constexpr const char* kInvert = "__invert__";

PyGetSetDef getters[] = {
    {"dtype", get_dtype, nullptr, "The type of the elements.", nullptr},
    {"ndim", get_ndim, nullptr, "The number of dimensions.", nullptr},
    {"device", get_device, nullptr, "The device whose memory holds it.", nullptr},
    {"_id", get_id, nullptr, "A number that no other tensor has while this one lives.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMethodDef methods[] = {{"_shape_tuple", get_shape_tuple, METH_NOARGS, nullptr},
                         {"_numpy", numpy, METH_NOARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};
PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Object, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

// The class of variables outside of graphs.
PyObject* variable_type = nullptr;

// Makes the class, a subclass of `base`, with slots for the operators.
nb::object make_class(nb::handle base) {
  const auto f = [](auto* function) { return reinterpret_cast<void*>(function); };
  PyType_Slot slots[] = {{Py_tp_dealloc, f(dealloc)},
                         {Py_tp_getset, getters},
                         {Py_tp_methods, methods},
                         {Py_tp_members, members},
                         {Py_bf_getbuffer, f(get_buffer)},
                         {Py_nb_add, f(binary<kAdd>)},
                         {Py_nb_subtract, f(binary<kSub>)},
                         {Py_nb_multiply, f(binary<kMul>)},
                         {Py_nb_true_divide, f(binary<kDivide>)},
                         {Py_nb_floor_divide, f(binary<kFloorDiv>)},
                         {Py_nb_remainder, f(binary<kMod>)},
                         {Py_nb_power, f(power)},
                         {Py_nb_matrix_multiply, f(binary<kMatMul>)},
                         {Py_nb_and, f(binary<kAnd>)},
                         {Py_nb_or, f(binary<kOr>)},
                         {Py_nb_xor, f(binary<kXor>)},
                         {Py_nb_negative, f(unary<kNeg>)},
                         {Py_nb_absolute, f(unary<kAbs>)},
                         {Py_nb_invert, f(unary<kInvert>)},
                         {0, nullptr}};
  PyType_Spec spec = {"millrace.eager.tensor.EagerTensor", sizeof(Object), 0, Py_TPFLAGS_DEFAULT,
                      slots};
  nb::object bases = nb::make_tuple(base);
  nb::object made = nb::steal(PyType_FromSpecWithBases(&spec, bases.ptr()));
  if (!made.is_valid()) throw nb::python_error();
  eager_type = reinterpret_cast<PyTypeObject*>(made.ptr());
  // The base is a class of Python's and brings the collector along. These objects refer to none of
  // Python's, so it has nothing to find in them, and they are made and freed without it.
  eager_type->tp_flags &= ~Py_TPFLAGS_HAVE_GC;
  eager_type->tp_traverse = nullptr;
  eager_type->tp_clear = nullptr;
  eager_type->tp_free = PyObject_Free;
  PyType_Modified(eager_type);
  return made;
}

// What the runtime is made with; not changed any more once it is there.
struct RuntimeOptions {
  SessionOptions options;
  bool started = false;
};
RuntimeOptions& runtime_options() {
  static RuntimeOptions& options = *[] {
    auto* made = new RuntimeOptions;
    made->options.soft_placement = true;
    return made;
  }();
  return options;
}

// False where the runtime is there already.
bool set_runtime_options(int threads, int cpu_devices, bool soft_placement) {
  RuntimeOptions& to = runtime_options();
  if (to.started) return false;
  to.options.threads = threads;
  to.options.cpu_devices = cpu_devices;
  to.options.soft_placement = soft_placement;
  return true;
}

}  // namespace

const eager::EagerRuntime& eager_runtime() {
  static const eager::EagerRuntime& runtime = *[] {
    runtime_options().started = true;
    return new eager::EagerRuntime(unwrap(eager::make_eager_runtime(runtime_options().options)));
  }();
  return runtime;
}

bool is_eager_tensor(nb::handle object) {
  return eager_type != nullptr && Py_TYPE(object.ptr()) == eager_type;
}

eager::EagerTensor& eager_tensor(nb::handle object) { return *object_of(object.ptr())->tensor; }

nb::object read_variable(nb::handle object) {
  if (reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())) != variable_type) return {};
  return object.attr("value")();
}

nb::object wrap_eager(eager::TensorRef tensor) {
  // The class once it has its operators.
  static const nb::handle ready = library("millrace.ops.eager_overloads", "EagerTensor");
  (void)ready;
  auto* object = PyObject_New(Object, eager_type);
  if (object == nullptr) throw nb::python_error();
  object->tensor = tensor.detach();
  object->weak_references = nullptr;
  return nb::steal(reinterpret_cast<PyObject*>(object));
}

nb::object wrap_value(Tensor value) { return wrap_eager(eager_context().tensor(std::move(value))); }

void check_eager(const Status& status) {
  if (!status.ok()) [[unlikely]] {
    const std::string line = describe_origin(user_origin());
    raise(line.empty() ? status : status.with_line(line));
  }
}

void bind_eager_tensor(nb::module_& m) {
  m.def("set_eager_options", &set_runtime_options, nb::arg("threads"), nb::arg("cpu_devices"),
        nb::arg("soft_placement"));
  m.def("eager_started", [] { return runtime_options().started; });
  m.def("make_eager_tensor_class", &make_class);
  m.def("is_eager_tensor", &is_eager_tensor);
  m.def("set_variable_class", [](nb::handle type) { variable_type = type.inc_ref().ptr(); });
  // The type of the elements of the variable behind a handle.
  m.def("held_type", [](nb::handle object) {
    const ResourceHandle& handle = eager_tensor(object).tensor().item<ResourceHandle>();
    return nb::borrow(
        dtype_object(handle.contents.empty() ? DType::kResource : handle.contents[0].dtype));
  });
  m.def("zeros_like", [](nb::handle object) {
    if (!is_eager_tensor(object)) throw nb::type_error("expected a tensor that has a value");
    const eager::TensorRef like(&eager_tensor(object));
    eager::TensorRef made;
    check_eager([&]() -> Status {
      MR_TRY_ASSIGN(made, eager_context().execute_one("ZerosLike", {like}));
      return ok_status();
    }());
    return wrap_eager(std::move(made));
  });
  m.def("copy_tensor", [](nb::handle object) {
    if (!is_eager_tensor(object)) throw nb::type_error("expected a tensor that has a value");
    return wrap_value(unwrap(unwrap(eager_context().to_host(eager_tensor(object))).clone()));
  });
}

}  // namespace millrace::python
