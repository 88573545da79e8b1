#pragma once

#include <span>
#include <vector>

#include "millrace/graph/function_builder.h"

namespace millrace {

// Copies the operations of a graph, the body of a function, through `builder`: `args` stand for its
// parameters. Returns what stands for its results.
Result<std::vector<Expr>> inline_body(GraphBuilder& builder, const FunctionBody& body,
                                      std::span<const Expr> args);
// The same for any graph: `from` are the tensors that `args` stand for, `results` those asked for.
Result<std::vector<Expr>> inline_graph(GraphBuilder& builder, const Graph& graph,
                                       std::span<const Output> from, std::span<const Expr> args,
                                       std::span<const Output> results);

}  // namespace millrace
