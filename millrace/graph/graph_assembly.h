#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/graph/function.h"
#include "millrace/graph/graph.h"
#include "millrace/graph/message_conversion.h"

namespace millrace {

// Nodes that are to join a graph together, in any order: checked as a whole, then all added or
// none. What import and function bodies have in common. Inside graph/ only; not thread-safe.
//
// Use: define() every node; fill in its inputs; check(); commit().
class GraphAssembly {
 public:
  // A tensor or, with index -1, a node: of this assembly, or of the graph.
  struct Source {
    int32_t node = -1;
    int32_t index = 0;
    bool in_graph = false;
    friend auto operator<=>(const Source&, const Source&) = default;
  };

  struct Pending {
    // Given to define().
    std::string name;
    std::string op;
    std::string device;
    AttrMap attrs;
    OriginId origin = 0;
    // Filled in between define() and check().
    std::vector<Source> inputs = {};
    std::vector<Source> control_inputs = {};
    // Found by define(): null for an unknown op, whose output types check() guesses from what its
    // consumers ask for.
    const OpDef* def = nullptr;
    Ref<Function> function = {};
    std::vector<DType> input_types = {};
    std::vector<DType> output_types = {};
    std::vector<TensorFacts> facts = {};
    // Found by commit().
    NodeId id = -1;
  };

  using Functions = std::map<std::string, Ref<Function>, std::less<>>;

  // `functions` come before those of the graph. Both must outlive the assembly.
  GraphAssembly(Graph& graph, const Functions& functions, ImportBudget& budget)
      : graph_(graph), functions_(functions), budget_(budget) {}

  // The definition of an op or function by this name; null when there is none. `function` is set
  // for a function.
  const OpDef* find_op(std::string_view op, Ref<Function>& function) const;

  // Finds the op, checks attributes against it and fills defaults. `producer` is the version of the
  // graph, for deprecated ops. The answer is the node's number.
  Result<int32_t> define(Pending node, int producer);
  Pending& node(int32_t i) { return nodes_[static_cast<size_t>(i)]; }
  const Pending& node(int32_t i) const { return nodes_[static_cast<size_t>(i)]; }
  int32_t size() const { return static_cast<int32_t>(nodes_.size()); }

  // Makes an unknown op have this output. INVALID_ARGUMENT when a known one does not.
  Status need_output(const Pending& consumer, std::string_view what, Source source);

  // Number and types of inputs, output numbers, cycles, shapes.
  Status check();
  // Adds the nodes. After check() this fails only when the graph was changed in between.
  Status commit();

  // "MatMul "name": " before the message, and where the node was made on a line after it.
  static Status annotate(const Pending& node, const Status& status);

 private:
  Status check_inputs(Pending& node);
  Status guess_unknown_types();
  Status check_types(const Pending& node) const;
  Status sort();
  Status cycle_error(const std::vector<int>& waiting) const;
  Status infer_shapes(Pending& node);
  Status check_back_edges(const Pending& node) const;
  // Whether input `i` of `node` comes around a loop.
  bool is_back_edge(const Pending& node, size_t i) const;
  DType type_of(Source source) const;
  std::string name_of(Source source) const;
  Status charge_outputs(int64_t count);

  Graph& graph_;
  const Functions& functions_;
  ImportBudget& budget_;
  std::vector<Pending> nodes_;
  std::vector<int32_t> order_;
};

}  // namespace millrace
