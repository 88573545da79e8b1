#pragma once

#include "millrace/eager/builder.h"
#include "millrace/eager/tape.h"
#include "millrace/eager/variable.h"
#include "millrace/graph/function.h"
#include "millrace/session/session_options.h"

// Eager execution for clients: ops that run at once. See docs/eager.md.

namespace millrace::eager {

// A context on this process's devices, with all ops of the library.
struct EagerRuntime {
  Ref<EagerContext> context;
  // What ops that run functions find them in; may be added to.
  Ref<FunctionLibrary> functions;
};
// `options`: the devices, and the threads of one kernel (`threads`).
Result<EagerRuntime> make_eager_runtime(const SessionOptions& options = {});

}  // namespace millrace::eager
