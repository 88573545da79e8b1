#pragma once

#include <string_view>

#include "millrace/api/variables.h"

// Layers in which positions of one sequence look at positions of another. See layers.h for names
// and weights.

namespace millrace::layers {

// softmax(query key' / sqrt(n)) value, of query [..., q, n], key [..., k, n] and value [..., k, m]:
// for each query a mean of the values, by how well their keys fit. `mask`, if valid, is bool of a
// shape that broadcasts to [..., q, k]: false where a query may not look. A query that may look
// nowhere gets the mean of all values.
Expr attention(const Scope& scope, Expr query, Expr key, Expr value, Expr mask = {},
               SourceLocation where = SourceLocation::current());

// Attention by `heads` of query [batch, q, n] to memory [batch, k, m], each on projections of its
// own, then one more projection: [batch, q, units]. `units` is a multiple of `heads`; 0: n. `mask`
// broadcasts to [batch, heads, q, k]. With query == memory it is self-attention.
struct MultiHeadOptions {
  int64_t units = 0;
  Expr mask = {};
  Initializer kernel_initializer = initializers::glorot_uniform();
};
Expr multi_head_attention(const Scope& scope, Variables& variables, std::string_view name,
                          Expr query, Expr memory, int64_t heads,
                          const MultiHeadOptions& options = {},
                          SourceLocation where = SourceLocation::current());

}  // namespace millrace::layers
