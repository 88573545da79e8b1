#pragma once

#include <string_view>

#include "millrace/base/status.h"
#include "python/src/binding.h"

namespace millrace::python {

// Status to exceptions: the only place where one becomes the other.

// What may quote a user's bytes as text; those that are not UTF-8 become "\\xff".
nb::str text(std::string_view s);

// Raises the class of millrace.core.errors that stands for the code.
[[noreturn]] void raise(const Status& status);
// The same for mistakes in the construction of a graph, which Python calls ValueError (TypeError
// and the like are raised where the types are known).
[[noreturn]] void raise_value_error(const Status& status);

inline void check(const Status& status) {
  if (!status.ok()) [[unlikely]]
    raise(status);
}
template <class T>
T unwrap(Result<T> result) {
  if (!result.ok()) [[unlikely]]
    raise(result.status());
  return std::move(result).value();
}
template <class T>
T unwrap_value(Result<T> result) {
  if (!result.ok()) [[unlikely]]
    raise_value_error(result.status());
  return std::move(result).value();
}

// A Python exception that must cross code that does not throw: kept here, and raised again by
// rethrow() once that code has returned. One per call; not thread-safe.
class PendingException {
 public:
  // Keeps what is being thrown (call in a catch block) and gives the Status to return meanwhile.
  Status keep(nb::python_error& error);
  // Raises what was kept, if anything.
  void rethrow();

 private:
  nb::object exception_;
};

// An exception as a Status, for code on threads that nobody catches on: the code of an error of
// millrace.core.errors, or TensorFlow's choice for Python's own classes (TypeError is
// INVALID_ARGUMENT, StopIteration OUT_OF_RANGE, ...). Needs the GIL.
Status status_from_exception(nb::python_error& error);

}  // namespace millrace::python
