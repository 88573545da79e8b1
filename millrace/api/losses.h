#pragma once

#include "millrace/api/scope.h"

namespace millrace::layers {

// The mean over the batch of the cross entropy of softmax(logits) and the labels; a scalar. Labels
// are class numbers (int32 or int64, the shape of logits without its last dimension), or
// probabilities of the shape and type of logits.
Expr softmax_cross_entropy(const Scope& scope, Expr logits, Expr labels,
                           SourceLocation where = SourceLocation::current());

// The mean over all elements of (predictions - targets)^2; a scalar.
Expr mean_squared_error(const Scope& scope, Expr predictions, Expr targets,
                        SourceLocation where = SourceLocation::current());

// The share of rows whose largest logit is that of the label, a class number; a float scalar.
Expr accuracy(const Scope& scope, Expr logits, Expr labels,
              SourceLocation where = SourceLocation::current());

}  // namespace millrace::layers
