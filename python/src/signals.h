#pragma once

#include "millrace/base/status.h"

// Signals that come while a call of the runtime keeps the main thread: Python's handlers run on it
// now and then, and what one raises, as Ctrl-C does, ends the call.

namespace millrace::python {

// When the module is loaded: for what follows.
void find_main_thread();

// Whether this is the thread on which Python runs handlers of signals.
bool on_main_thread();

// Runs the handlers; true when one raised. For calls that ask while they run without the
// interpreter's lock, on the main thread.
bool interrupted();

// `interrupted` on the main thread, null on others, where no handler runs.
inline bool (*interrupted_here())() { return on_main_thread() ? interrupted : nullptr; }

// Raises what a handler raised meanwhile, however the call ended, if one did: here or in a function
// of py_func that the call ran.
void raise_interrupt();

}  // namespace millrace::python
