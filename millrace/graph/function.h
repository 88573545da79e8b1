#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/base/ref.h"
#include "millrace/graph/graph.h"

namespace tensorflow {
class FunctionDef;
class FunctionDefLibrary;
}  // namespace tensorflow

namespace millrace {

// A function: a signature and a body. The body's nodes name their inputs in the function form
// ("arg", "node:out:0",
// "^node"); attribute values may be placeholders for the signature's attributes.
class Function : public RefCounted {
 public:
  struct BodyNode {
    std::string name;
    std::string op;
    std::vector<std::string> inputs;  // data inputs, then control inputs
    std::string device;
    AttrMap attrs;
    OriginId origin = 0;
    friend bool operator==(const BodyNode&, const BodyNode&) = default;
  };

  OpDef signature;
  std::vector<BodyNode> nodes;
  std::vector<std::pair<std::string, std::string>> returns;          // output name -> "node:out:0"
  std::vector<std::pair<std::string, std::string>> control_returns;  // name -> node
  AttrMap attrs;
  // Attributes of parameters, by the parameter's number; names begin with '_'.
  std::vector<std::pair<int, AttrMap>> arg_attrs;
  // The name of the function that computes its gradient; empty: derived.
  std::string gradient;
};

// A function's body as a graph, for given attribute values: one _Arg node per argument and one
// _Retval per result, each with attribute "index".
struct FunctionBody : RefCounted {
  Ref<Graph> graph;
  std::vector<NodeId> args;
  std::vector<NodeId> results;
  std::vector<NodeId> control_results;
  std::vector<DType> arg_types;
  std::vector<DType> result_types;
};

// Functions by name. Append-only and thread-safe, as the op registry.
class FunctionLibrary : public RefCounted {
 public:
  FunctionLibrary();
  ~FunctionLibrary() override;

  // Another library over the same functions, those that either gets later included, which keeps
  // bodies of its own: what the graphs of bodies have, so that no body keeps itself alive.
  Ref<FunctionLibrary> share() const;

  // The same function again is fine; another one of that name is INVALID_ARGUMENT.
  Status add(Ref<Function> function);
  // Null when there is none.
  Ref<Function> find(std::string_view name) const;
  std::vector<std::string> names() const;
  // A name that no function has: `base`, or `base`_1, `base`_2, ... The name is reserved.
  std::string unique_name(std::string_view base);

  // The body for these attribute values, built once and kept. INVALID_ARGUMENT for a body that is
  // not a graph: unknown inputs, wrong types, missing attributes, a function that reaches itself.
  // Runs no code recursively on the depth of the call graph.
  Result<Ref<FunctionBody>> instantiate(std::string_view name, const AttrMap& attrs,
                                        const OpRegistry& registry) const;

 private:
  struct Functions;
  struct Impl;
  explicit FunctionLibrary(Impl* impl) : impl_(impl) {}
  Impl* impl_;
};

// The functions that nodes of the graph run, by name or by attribute, and those that these run,
// each once.
Result<std::vector<Ref<Function>>> reachable_functions(const Graph& graph);

// A function made from a graph: `args` become parameters, `results` its results, and `effects` run
// whenever it is called. Every node that these need, up to the args, becomes part of the body. What
// is known of the parameters' shapes is kept. INVALID_ARGUMENT when a needed node is a placeholder
// that is no argument.
Result<Ref<Function>> function_from_graph(const Graph& graph, std::string_view name,
                                          std::span<const Output> args,
                                          std::span<const Output> results,
                                          std::span<const NodeId> effects = {});

// A function's body as a graph of its own that may be changed, sharing the functions of `library`.
// `facts`: what is known of the arguments where it is called, one per argument, or empty.
Result<Ref<FunctionBody>> copy_body(const FunctionBody& body, Ref<FunctionLibrary> library,
                                    std::span<const TensorFacts> facts);

// Conversion to and from messages. INVALID_ARGUMENT for a body whose names, inputs or results do
// not fit together; types are checked when it is instantiated.
Result<Ref<Function>> function_from_proto(const tensorflow::FunctionDef& proto);
// An attribute that cannot be written (a variant that cannot leave the process) is left out.
void function_to_proto(const Function& function, tensorflow::FunctionDef& proto);

}  // namespace millrace
