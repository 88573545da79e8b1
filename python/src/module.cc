#include <vector>

#include "millrace/ops/register_ops.h"
#include "python/src/binding.h"
#include "python/src/signals.h"
#include "python/src/status.h"

namespace millrace::python {

nb::handle library(const char* module, const char* name) {
  // Modules stay loaded, so borrowed references stay good. Literals: compared by address.
  struct Entry {
    const char* module;
    const char* name;
    PyObject* object;
  };
  static std::vector<Entry> entries;
  for (const Entry& entry : entries) {
    if (entry.module == module && entry.name == name) return entry.object;
  }
  nb::object object = nb::module_::import_(module).attr(name);
  entries.push_back({module, name, object.release().ptr()});
  return entries.back().object;
}

}  // namespace millrace::python

NB_MODULE(_core, m) {
  namespace py = millrace::python;
  m.doc() = "The C++ part of millrace.";
  nanobind::set_leak_warnings(false);
  py::check(millrace::register_ops());
  py::find_main_thread();
  py::bind_arrays(m);
  py::bind_graph(m);
  py::bind_ops(m);
  py::bind_calls(m);
  py::bind_control_flow(m);
  py::bind_eager_calls(m);
  py::bind_eager_tape(m);
  py::bind_eager_tensor(m);
  py::bind_events(m);
  py::bind_gradients(m);
  py::bind_checkpoints(m);
  py::bind_files(m);
  py::bind_messages(m);
  py::bind_py_func(m);
  py::bind_records(m);
  py::bind_server(m);
  py::bind_session(m);
}
