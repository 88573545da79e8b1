#pragma once

#include <string>
#include <utility>

#include "python/src/graph.h"

namespace millrace::python {

// The full name of a new operation: below the open scope and unique, or as it is when it ends in
// '/'. Raises ValueError.
std::string full_name(PyGraph& graph, std::string_view name);

// A name scope that is open in a graph.
class OpenScope {
 public:
  // Opens the scope: below the one that is open and under a name that nothing has; as it is when it
  // ends in '/'; the root when it is None or empty. `as_default`: the graph is the thread's default
  // one meanwhile. Raises ValueError.
  OpenScope(PyGraph& graph, nb::handle name, bool as_default);
  void close();
  // "a/b/"
  const std::string& name() const { return name_; }

 private:
  nb::object graph_;  // while it is open
  bool as_default_;
  std::string name_;
  std::string before_;
  bool before_is_absolute_;
};

// The scope of a graph for a while.
class ScopeGuard {
 public:
  ScopeGuard(PyGraph& graph, std::string scope)
      : graph_(graph), before_(std::exchange(graph.here().scope, std::move(scope))) {}
  ~ScopeGuard() { graph_.here().scope = std::move(before_); }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  PyGraph& graph_;
  std::string before_;
};

}  // namespace millrace::python
