#pragma once

#include <vector>

#include "millrace/api/scope.h"

namespace millrace {

// How the rows of one large table lie in several smaller ones.
enum class PartitionStrategy {
  kMod,  // row i of n tables is row i / n of table i % n
  kDiv,  // one after the other: the first rows are table 0, the next ones table 1, and so on
};

struct EmbeddingOptions {
  PartitionStrategy partition = PartitionStrategy::kMod;
  // Rows with a larger Euclidean norm are scaled down to this one; 0: rows stay as they are.
  double max_norm = 0;
};

// The rows of a table that `ids` (int32 or int64, of any shape) name: a tensor of the shape of
// `ids` followed by that of a row.
//
//   Expr words = embedding_lookup(root, {table}, ids);                    // one table
//   Expr words = embedding_lookup(root, {part_0, part_1, part_2}, ids);   // one in three parts
//
// A table is a tensor or a variable (by reference, or the handle of one whose dtype is known). Each
// is read where it lives, only the rows asked for leave it, and its gradient is rows
// (Gradient::is_slices). An id that is negative or past the last row is INVALID_ARGUMENT at run
// time.
Expr embedding_lookup(const Scope& scope, const std::vector<Expr>& tables, Expr ids,
                      const EmbeddingOptions& options = {},
                      SourceLocation where = SourceLocation::current());

// Bags of ids: ids[i] belongs to bag bags[i], which is below num_bags. A bag may be empty.
struct EmbeddingBags {
  Expr ids;           // a vector of int32 or int64
  Expr bags;          // as long
  Expr num_bags;      // a scalar of int32 or int64
  Expr weights = {};  // as long as ids; invalid: ones
};

// What becomes of the rows of a bag, each times its weight.
enum class Combiner {
  kSum,
  kMean,   // their sum over the sum of the weights
  kSqrtN,  // their sum over the root of the sum of the squared weights
};

// One combined row per bag; zeros for an empty one.
Expr embedding_lookup_bags(const Scope& scope, const std::vector<Expr>& tables,
                           const EmbeddingBags& bags, Combiner combiner = Combiner::kMean,
                           const EmbeddingOptions& options = {},
                           SourceLocation where = SourceLocation::current());

}  // namespace millrace
