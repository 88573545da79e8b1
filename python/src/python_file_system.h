#pragma once

#include "millrace/base/file.h"
#include "python/src/binding.h"

namespace millrace::python {

// The file system that a Python object is, whose methods take and give plain values (see
// millrace/io/file_systems.py). Lives as long as the process.
FileSystem& make_python_file_system(nb::object methods);

}  // namespace millrace::python
