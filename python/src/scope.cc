#include "python/src/scope.h"

#include <nanobind/stl/string.h>

#include "python/src/origin.h"

namespace millrace::python {

std::string full_name(PyGraph& graph, std::string_view name) {
  if (!name.empty() && name.back() == '/') return std::string(name.substr(0, name.size() - 1));
  const std::string& scope = graph.here().scope;
  const bool good = scope.empty() ? is_valid_node_name(name) : is_valid_scope_name(name);
  if (!good) {
    raise_here(PyExc_ValueError,
               str_cat("'", name, "' is not a valid ", scope.empty() ? "" : "scope ", "name"));
  }
  return graph.graph().unique_name(str_cat(scope, name));
}

OpenScope::OpenScope(PyGraph& graph, nb::handle name, bool as_default)
    : graph_(nb::borrow(graph.python())), as_default_(as_default) {
  if (!name.is_none() && !nb::try_cast(name, name_)) {
    PyErr_Format(PyExc_TypeError, "'%R' is not a valid scope name: expected a str", name.ptr());
    throw nb::python_error();
  }
  Scopes& here = graph.here();
  const bool whole = name_.empty() || name_.back() == '/';
  if (!whole) {
    const bool good = here.scope.empty() ? is_valid_node_name(name_) : is_valid_scope_name(name_);
    if (!good) {
      PyErr_Format(PyExc_ValueError, "'%s' is not a valid scope name", name_.c_str());
      throw nb::python_error();
    }
    name_ = graph.unique_name(here.scope + name_, true) + "/";
  }
  before_ = std::exchange(here.scope, name_);
  before_is_absolute_ = here.scope_is_absolute;
  if (whole) here.scope_is_absolute = true;
  if (as_default_) Context::here().open_graph(graph_);
}

void OpenScope::close() {
  if (!graph_.is_valid()) return;
  Scopes& here = nb::cast<PyGraph&>(graph_).here();
  here.scope = before_;
  here.scope_is_absolute = before_is_absolute_;
  if (as_default_) Context::here().close_graph();
  graph_.reset();
}

}  // namespace millrace::python
