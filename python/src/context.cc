#include "python/src/context.h"

#include <algorithm>

#include "python/src/graph.h"

namespace millrace::python {

namespace {

// Of this thread; null until it is asked for, and after Python's state of the thread is gone.
thread_local constinit Context* current = nullptr;

// Of all threads.
std::vector<Context*>& contexts() {
  static auto* const all = new std::vector<Context*>();
  return *all;
}

}  // namespace

constinit bool Context::eager_ = false;
constinit bool Context::eager_chosen_ = false;

Context& Context::here() {
  if (current != nullptr) return *current;
  auto* made = new Context();
  nb::capsule owner(made, [](void* context) noexcept { delete static_cast<Context*>(context); });
  // The state's dictionary goes with it, with the GIL held, also on threads that are not Python's.
  PyObject* state = PyThreadState_GetDict();
  if (state == nullptr || PyDict_SetItemString(state, "millrace.context", owner.ptr()) != 0) {
    throw nb::python_error();
  }
  current = made;
  return *made;
}

Context::Context() { contexts().push_back(this); }

Context::~Context() {
  std::erase(contexts(), this);
  if (current == this) current = nullptr;
  for (const OpenGraph& open : graphs_) Py_DECREF(open.python);
}

void Context::open_graph(nb::handle graph) {
  graphs_.push_back({graph.ptr(), &nb::cast<PyGraph&>(graph)});
  graph.inc_ref();
}

void Context::close_graph() {
  PyObject* closed = graphs_.back().python;
  graphs_.pop_back();
  Py_DECREF(closed);
}

nb::handle Context::innermost_graph() const {
  return graphs_.empty() ? nb::handle() : nb::handle(graphs_.back().python);
}

PyGraph& Context::default_graph() const {
  if (!graphs_.empty()) return *graphs_.back().graph;
  return nb::cast<PyGraph&>(library("millrace.graph.default_graph", "global_graph")());
}

Scopes& Context::scopes_of(const PyGraph& graph) {
  if (last_graph_ != &graph) {
    last_ = &scopes_[&graph];
    last_graph_ = &graph;
  }
  return *last_;
}

void Context::forget(const PyGraph& graph) {
  for (Context* context : contexts()) {
    context->scopes_.erase(&graph);
    if (context->last_graph_ == &graph) context->last_graph_ = nullptr;
  }
}

}  // namespace millrace::python
