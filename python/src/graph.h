#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "millrace/graph/function_builder.h"
#include "python/src/binding.h"
#include "python/src/context.h"

namespace millrace::python {

// What Python's Graph is made of: a graph, the builder that adds to it, and what is open in it for
// all threads (devices, attributes, overrides); what is open for one thread is in its Context.
// Python's Operation and Tensor are plain Python objects; the list of them that Python's Graph
// keeps is known here too, so that a node has one Operation for good. Used with the GIL held.
class PyGraph {
 public:
  PyGraph();
  // The graph around the functions that are traced from eager code, which go into `functions`:
  // values that they use become placeholders of it, for which the values are given at each call.
  explicit PyGraph(Ref<FunctionLibrary> functions);
  // The body of a function in the making; attach() says which. `outer` lives as long as this.
  explicit PyGraph(PyGraph* outer) : outer_(outer) {}
  ~PyGraph() { Context::forget(*this); }
  PyGraph(const PyGraph&) = delete;
  PyGraph& operator=(const PyGraph&) = delete;

  // Python's Graph object and its list of operations by node; both own this.
  void set_python(PyObject* self, PyObject* operations) {
    self_ = self;
    operations_ = operations;
  }
  // A function's body is built through `builder` until detach(); afterwards it can only be read.
  void attach(GraphBuilder& builder);
  void detach();

  Graph& graph() const { return *graph_; }
  const Ref<Graph>& shared_graph() const { return graph_; }
  PyGraph* outer() const { return outer_; }
  // A function's body that is finished.
  bool detached() const { return builder_ == nullptr; }
  bool is_ancestor_of(const PyGraph& other) const;
  // The graph that is nobody's body.
  PyGraph& root();
  // Where tensors with values become placeholders: see above.
  bool captures_values() const { return captures_values_; }
  // The placeholder for `value`: an EagerTensor, or a tensor of a graph that this one is not part
  // of, as a function has that is called while another one is traced.
  Output capture_value(nb::handle value);
  // Whether the tensor of a graph is one to be captured so.
  bool captures(const PyGraph& other);
  // The values and their placeholders, in the order in which they were first used.
  nb::list captured_values();
  // Grows with every node that is added to this graph, to one around it, or to a body in them: no
  // two nodes of a program are added at the same number.
  int64_t last_id() const;
  // Raises RuntimeError when the graph is finalized, ValueError when it is of a function that is
  // finished: nothing can be added then. `what` is to be added, for messages.
  GraphBuilder& builder(std::string_view what = {});
  // The same with scope, device, control inputs and origin of this moment in its context.
  GraphBuilder& ready_builder();

  // Python's objects.
  nb::handle python() const { return self_; }
  nb::object operation(NodeId id);
  nb::object tensor(Output output);
  Expr expr(Output output) { return {builder_, output.node, output.index}; }

  // An operation under a full name that is taken already (unique_name), with the settings of the
  // open contexts. Raises ValueError.
  NodeId add(const std::string& op, std::string name, std::vector<Output> inputs, AttrMap attrs);
  // To be called for a node that was added through builder(): the open contexts take note of it.
  void made(NodeId id);

  // What is open in this graph on this thread.
  Scopes& here() const { return Context::here().scopes_of(*this); }
  // Those of all threads, or of this thread after places_by_thread().
  Places& places() const;
  // From now on every thread has places of its own, which begin as they are now.
  void places_by_thread() { places_by_thread_ = true; }
  // A name that nothing has yet, from a full one. `mark`: nobody else gets it any more.
  std::string unique_name(std::string_view full, bool mark);
  // Those of the graph, whatever the thread.
  AttrMap attrs;                                                    // for every operation
  std::unordered_map<std::string, std::string> gradient_overrides;  // op -> name of the rule
  std::unordered_map<std::string, std::string> kernel_labels;
  bool finalized = false;
  // A copy of a body that is differentiated: tensors of that body mean those of the same name here.
  bool stands_for_body = false;
  // Operations of the graph around that operations in here must wait for: the call waits instead.
  std::vector<NodeId> outer_control_inputs;
  // The same for operations made while some controllers were open; these are closed.
  std::vector<Controller> outer_controllers;
  // All of these that operations which `results` need wait for.
  std::vector<NodeId> outer_waits(const std::vector<Expr>& results) const;

 private:
  std::vector<NodeId> control_inputs_for(const std::vector<Output>& inputs) const;

  mutable Places places_;
  bool places_by_thread_ = false;
  std::unordered_set<std::string> marked_names_;  // of scopes, and by unique_name()
  Ref<Graph> graph_;
  std::unique_ptr<GraphBuilder> own_;
  GraphBuilder* builder_ = nullptr;
  PyGraph* outer_ = nullptr;
  bool captures_values_ = false;
  std::vector<std::pair<nb::object, Output>> values_;
  std::unordered_map<const void*, size_t> value_numbers_;  // by Python's object, in values_
  int64_t nodes_of_bodies_ = 0;                            // that are finished
  PyObject* self_ = nullptr;                               // borrowed
  PyObject* operations_ = nullptr;                         // borrowed
};

// Between attributes and Python values.
AttrValue attr_from_python(std::string_view op, const AttrDef& def, nb::handle value);
// The attribute of that name of an op, which may be null: what it does not define is of the kind
// that the value is.
AttrValue attr_from_python(std::string_view op, const OpDef* def, const std::string& name,
                           nb::handle value);
nb::object attr_to_python(const AttrValue& value);
// A shape as Python's tuple of sizes (None where unknown), or None.
nb::object shape_tuple(const PartialShape& shape);
PartialShape shape_from_python(nb::handle shape);

}  // namespace millrace::python
