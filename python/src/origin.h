#pragma once

#include <string>

#include "millrace/graph/origin.h"
#include "python/src/binding.h"

namespace millrace::python {

// Where in the user's program this thread is: the innermost frame that is neither of this package
// nor of Python's own library. 0 where there is none.
OriginId user_origin();

// Raises an exception of the class, whose message ends with the user's line.
[[noreturn]] void raise_here(PyObject* type, const std::string& message);

}  // namespace millrace::python
