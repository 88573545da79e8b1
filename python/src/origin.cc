#include "python/src/origin.h"

#include <nanobind/stl/string.h>

#include <unordered_map>

#include "millrace/base/str_cat.h"

namespace millrace::python {

namespace {

// Files whose frames are not the user's: those of this package and of Python's own library.
bool is_library_file(PyObject* filename) {
  static std::unordered_map<PyObject*, bool> known;  // keeps its keys alive
  const auto found = known.find(filename);
  if (found != known.end()) return found->second;
  const bool result =
      nb::cast<bool>(library("millrace.core.origin", "is_library_file")(nb::borrow(filename)));
  Py_INCREF(filename);
  known.emplace(filename, result);
  return result;
}

struct Place {
  PyObject* file;
  PyObject* function;
  int line;
  friend bool operator==(const Place&, const Place&) = default;
};
struct PlaceHash {
  size_t operator()(const Place& p) const {
    return std::hash<void*>()(p.file) * 31 + std::hash<void*>()(p.function) * 7 +
           static_cast<size_t>(p.line);
  }
};

OriginId origin_of_frame(PyObject* file, PyObject* function, int line) {
  static std::unordered_map<Place, OriginId, PlaceHash> known;
  const Place place{file, function, line};
  const auto found = known.find(place);
  if (found != known.end()) return found->second;
  nb::object code = library("millrace.core.origin", "source_line")(nb::borrow(file), line);
  const OriginId id = intern_origin({.file = nb::cast<std::string>(nb::borrow(file)),
                                     .line = line,
                                     .function = nb::cast<std::string>(nb::borrow(function)),
                                     .code = nb::cast<std::string>(code)});
  Py_INCREF(file);
  Py_INCREF(function);
  known.emplace(place, id);
  return id;
}

}  // namespace

OriginId user_origin() {
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const bool users = !is_library_file(code->co_filename);
    OriginId id = 0;
    if (users) id = origin_of_frame(code->co_filename, code->co_name, PyFrame_GetLineNumber(frame));
    Py_DECREF(code);
    PyFrameObject* back = users ? nullptr : PyFrame_GetBack(frame);
    Py_DECREF(frame);
    if (users) return id;
    frame = back;
  }
  return 0;
}

void raise_here(PyObject* type, const std::string& message) {
  const std::string line = describe_origin(user_origin());
  PyErr_SetString(type, (line.empty() ? message : str_cat(message, "\n", line)).c_str());
  throw nb::python_error();
}

}  // namespace millrace::python
