#pragma once

#include "millrace/api/eager.h"
#include "python/src/binding.h"

namespace millrace::python {

// Python's EagerTensor: a value that is there. An object of C with one field, of a class that is
// made on first use, a subclass of tf.Tensor whose methods stand in millrace/eager/tensor.py.

// The context of the process, made on first use.
const eager::EagerRuntime& eager_runtime();
inline eager::EagerContext& eager_context() { return *eager_runtime().context; }

bool is_eager_tensor(nb::handle object);
// Of an EagerTensor.
eager::EagerTensor& eager_tensor(nb::handle object);
// The value of a variable outside of graphs; invalid for anything else.
nb::object read_variable(nb::handle object);
// A new object.
nb::object wrap_eager(eager::TensorRef tensor);
// A value of the host's as an object.
nb::object wrap_value(Tensor value);

// How the op ended, for Python: raises the class of errors that the status stands for.
void check_eager(const Status& status);

}  // namespace millrace::python
