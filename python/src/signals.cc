#include "python/src/signals.h"

#include <utility>

#include "python/src/gil.h"

namespace millrace::python {

namespace {

// What a handler raised on this thread while a call was under way: owned, null for nothing. It is
// not left as the thread's current exception, for Python code may run before the call is over.
thread_local PyObject* raised = nullptr;

unsigned long main_thread = 0;

}  // namespace

void find_main_thread() {
  main_thread = nb::cast<unsigned long>(
      nb::module_::import_("threading").attr("main_thread")().attr("ident"));
}

bool on_main_thread() { return PyThread_get_thread_ident() == main_thread; }

bool interrupted() {
  const WithGil gil;
  if (PyErr_CheckSignals() == 0) return false;
  nb::python_error error;
  Py_XSETREF(raised, nb::handle(error.value()).inc_ref().ptr());
  return true;
}

void raise_interrupt() {
  if (raised == nullptr) {
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    return;
  }
  nb::object exception = nb::steal(std::exchange(raised, nullptr));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

}  // namespace millrace::python
