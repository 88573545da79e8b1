#pragma once

#include "python/src/graph.h"

namespace millrace::python {

// Python's graph (a FunctionGraph) for a function in the making inside `outer`. The caller detaches
// it before `inside` goes.
nb::object open_function_graph(PyGraph& outer, GraphBuilder& inside);

}  // namespace millrace::python
