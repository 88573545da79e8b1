#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "millrace/graph/graph.h"
#include "python/src/binding.h"

namespace millrace {
class Device;
}

namespace millrace::python {

class PyGraph;
struct PyOp;

// What a call of an op on a thread comes to: an operation of the thread's default graph
// (graph_mode()), or the values that it computes (eager_mode()). What differs between answers is a
// function here and asked nowhere else; names, which graphs need and values do not, are made behind
// it.
class Mode {
 public:
  // `arguments`: the inputs, then the attributes of PyOp::attrs. `second_first`: the second of two
  // inputs says the type of the first.
  virtual nb::object call(PyOp& op, nb::handle name, nb::handle arguments, bool second_first) = 0;
  // A tensor of the array's elements.
  virtual nb::object constant(nb::handle array, nb::handle dtype, nb::handle name) = 0;
  // Opens the scope of a function made of several ops on `values`. What comes back has the scope's
  // `name`, and a `close()`.
  virtual nb::object open_scope(nb::handle name, nb::handle values) = 0;

 protected:
  ~Mode() = default;
};

Mode& graph_mode();
Mode& eager_mode();

// What a `with` statement that is open adds to the control inputs of what is made.
struct Controller {
  std::vector<NodeId> inputs;
  std::unordered_set<NodeId> seen;  // made inside, so they wait already
  // Operations of the graph around that what is made inside must wait for.
  std::vector<NodeId> outer_inputs;
};

struct Places {
  std::string device;                   // merged from the open device contexts
  bool device_functions = false;        // Python must be asked for the device of each operation
  std::vector<std::string> colocation;  // node names
};

// What is open in one graph on one thread.
struct Scopes {
  std::string scope;  // "a/b/"
  // The scope was given whole: in a body, not below the scope around the body.
  bool scope_is_absolute = false;
  std::vector<Controller> controllers;
  std::unique_ptr<Places> places;  // only after PyGraph::places_by_thread(), once asked for
};

// What is open on one thread. Lives as long as Python's state of the thread, and is used by that
// thread alone, with the GIL held.
class Context {
 public:
  // This thread's.
  static Context& here();
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Graph or eager? Asked once by each call of an op.
  Mode& mode() const { return runs_eagerly() ? eager_mode() : graph_mode(); }
  // Calls run at once where eager execution is on and no graph is open.
  bool runs_eagerly() const { return eager_ && graphs_.empty(); }
  // For the whole process.
  static void choose_eager(bool on) {
    eager_ = on;
    eager_chosen_ = true;
  }
  static void suggest_eager() {
    if (!eager_chosen_) eager_ = true;
  }
  static bool eager_enabled() { return eager_; }
  // Where ops that run at once are asked to run; null: by what they are given.
  Device* eager_device() const { return eager_device_; }
  void set_eager_device(Device* device) { eager_device_ = device; }
  // The name scope that is open outside of graphs: "a/b/".
  std::string eager_scope;

  // A graph that is open on the thread.
  struct OpenGraph {
    PyObject* python;  // owned
    PyGraph* graph;
  };
  // Closes all for a while.
  std::vector<OpenGraph> take_graphs() { return std::exchange(graphs_, {}); }
  void restore_graphs(std::vector<OpenGraph> graphs) { graphs_ = std::move(graphs); }
  // The graphs that are open, innermost last.
  void open_graph(nb::handle graph);
  void close_graph();
  size_t num_open_graphs() const { return graphs_.size(); }
  nb::handle innermost_graph() const;  // invalid where none is open
  // The graph that operations go into: the innermost, or the program's own.
  PyGraph& default_graph() const;

  Scopes& scopes_of(const PyGraph& graph);
  // The graph goes: no thread keeps anything of it.
  static void forget(const PyGraph& graph);

 private:
  Context();

  std::vector<OpenGraph> graphs_;
  std::unordered_map<const PyGraph*, Scopes> scopes_;
  static constinit bool eager_, eager_chosen_;
  Device* eager_device_ = nullptr;
  // The entry of `scopes_` that was asked for last.
  const PyGraph* last_graph_ = nullptr;
  Scopes* last_ = nullptr;
};

// A graph as the default one of this thread, for its lifetime.
class DefaultGraph {
 public:
  explicit DefaultGraph(nb::handle graph) { Context::here().open_graph(graph); }
  ~DefaultGraph() { Context::here().close_graph(); }
  DefaultGraph(const DefaultGraph&) = delete;
  DefaultGraph& operator=(const DefaultGraph&) = delete;
};

}  // namespace millrace::python
