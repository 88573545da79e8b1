#pragma once

// What every binding file includes first: nanobind, and the bind_* function of each file.

#include <nanobind/nanobind.h>

namespace millrace::python {

namespace nb = nanobind;

void bind_arrays(nb::module_& m);
void bind_graph(nb::module_& m);
void bind_calls(nb::module_& m);
void bind_files(nb::module_& m);
void bind_checkpoints(nb::module_& m);
void bind_control_flow(nb::module_& m);
void bind_eager_calls(nb::module_& m);
void bind_eager_tape(nb::module_& m);
void bind_eager_tensor(nb::module_& m);
void bind_events(nb::module_& m);
void bind_gradients(nb::module_& m);
void bind_messages(nb::module_& m);
void bind_ops(nb::module_& m);
void bind_py_func(nb::module_& m);
void bind_records(nb::module_& m);
void bind_server(nb::module_& m);
void bind_session(nb::module_& m);

// A borrowed attribute of a module of the package, imported on first use and kept for good:
// library("millrace.core.errors", "OpError").
nb::handle library(const char* module, const char* name);

}  // namespace millrace::python
