#pragma once

#include <string>
#include <vector>

#include "millrace/kernel/registry.h"

namespace millrace {

// Ops from a shared library that is built apart from this one and loaded while the program runs.
// Such a library is one or more sources that define ops as this project's own do, and one line:
//
//   void register_cube(millrace::Registry& registry) { registry.add({...}); registry.kernel(...); }
//   MILLRACE_OP_LIBRARY(register_cube)
//
// It links the same libmillrace as the program.

// Loads the library at `path` (a path with a '/', or a name that the system's loader finds) and
// registers its ops. Returns the names of the ops that it added, in name order; loading it again
// returns them again. NOT_FOUND when it cannot be loaded, with the loader's reason;
// INVALID_ARGUMENT when it is no op library; FAILED_PRECONDITION when it was built for another
// version; ALREADY_EXISTS when an op of that name is there. A library stays loaded. Thread-safe.
Result<std::vector<std::string>> load_op_library(const std::string& path);

// Changes whenever what op libraries use of this one changes.
inline constexpr int kOpLibraryVersion = 1;

}  // namespace millrace

// Makes a shared library an op library: `function` registers its ops.
#define MILLRACE_OP_LIBRARY(function)                                                     \
  extern "C" {                                                                            \
  extern const int millrace_op_library_version;                                           \
  const int millrace_op_library_version = millrace::kOpLibraryVersion;                    \
  void millrace_op_library_register(millrace::Registry& registry) { function(registry); } \
  }
