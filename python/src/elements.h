#pragma once

#include "python/src/graph.h"

// Python's Operation and Tensor, seen from here.

namespace millrace::python {

// A tensor of a graph, of the class that PyGraph::tensor() makes.
bool is_tensor(nb::handle object);
bool is_operation(nb::handle object);
// Raise TypeError for what is neither.
PyGraph& graph_of(nb::handle tensor_or_operation);
Output output_of(nb::handle tensor);
DType type_of(nb::handle tensor);
NodeId node_of(nb::handle operation);
// Whether the tensor is one of `graph` or of a graph around it, or stands for one of those.
bool can_import(PyGraph& graph, nb::handle tensor);
// The tensor as the builder of its own graph, which is `graph` or one around it, has it. Raises
// ValueError.
Expr visible_expr(PyGraph& graph, nb::handle tensor);
// The tensor as one of `graph`, captured where it is one of a graph around it. Raises ValueError.
Output import_tensor(PyGraph& graph, nb::handle tensor);

}  // namespace millrace::python
