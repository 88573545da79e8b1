#include "python/src/gil.h"

#include <cxxabi.h>
#include <unistd.h>

namespace millrace::python {

namespace {

// Calls `take`, which takes the lock. The thread does not come back once Python gives it up.
template <class Take>
void take_or_stay(const Take& take) {
  try {
    take();
  } catch (abi::__forced_unwind&) {
    for (;;) pause();
  }
}

}  // namespace

bool interpreter_ends() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsFinalizing() || !Py_IsInitialized();
#else
  return _Py_IsFinalizing() || !Py_IsInitialized();
#endif
}

WithoutGil::~WithoutGil() {
  take_or_stay([this] { PyEval_RestoreThread(state_); });
}

WithGil::WithGil() {
  take_or_stay([this] { state_ = PyGILState_Ensure(); });
}

}  // namespace millrace::python
