#include "python/src/status.h"

#include <string>

namespace millrace::python {

nb::str text(std::string_view s) {
  PyObject* decoded =
      PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "backslashreplace");
  if (decoded == nullptr) throw nb::python_error();
  return nb::steal<nb::str>(decoded);
}

void raise(const Status& status) {
  nb::object error = library("millrace.core.errors", "from_status")(static_cast<int>(status.code()),
                                                                    text(status.message()));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

void raise_value_error(const Status& status) {
  PyErr_SetObject(PyExc_ValueError, text(status.message()).ptr());
  throw nb::python_error();
}

Status PendingException::keep(nb::python_error& error) {
  if (!exception_.is_valid()) exception_ = nb::borrow(error.value());
  return cancelled("a Python exception is on its way");
}

void PendingException::rethrow() {
  if (!exception_.is_valid()) return;
  nb::object exception = std::move(exception_);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

Status status_from_exception(nb::python_error& error) {
  nb::tuple parts =
      nb::cast<nb::tuple>(library("millrace.core.errors", "to_status")(nb::borrow(error.value())));
  return Status(static_cast<Code>(nb::cast<int>(parts[0])), nb::cast<std::string>(parts[1]));
}

}  // namespace millrace::python
