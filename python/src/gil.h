#pragma once

#include "python/src/binding.h"

namespace millrace::python {

// The interpreter's lock on threads that may still run when the interpreter ends. Python never
// gives such a thread the lock again: versions before 3.14 unwind its stack instead, which C++
// frames need not survive. So it waits here for the process to end.

// Whether the interpreter ends or has ended: nothing of Python may be touched any more.
bool interpreter_ends();

// Without the lock for its lifetime, on a thread that has it.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

// With the lock for its lifetime, on any thread. Ask interpreter_ends() before.
class WithGil {
 public:
  WithGil();
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace millrace::python
