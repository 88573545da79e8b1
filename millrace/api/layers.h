#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/api/regularizers.h"
#include "millrace/api/variables.h"

// Layers as plain functions: tensors in, tensors out. Those with weights take the Variables they
// keep them in and a name: weights are called "<scope>/<name>/kernel" and the like, and calling
// again with the same name uses the same weights. So a network for training and one for evaluation
// are two calls of one function:
//
//   Expr network(const Scope& s, Variables& vars, Expr x, bool training) {
//     x = layers::dense(s, vars, "hidden", x, 128, {.activation = ops::relu});
//     x = layers::dropout(s, x, 0.5, {.training = training});
//     return layers::dense(s, vars, "output", x, 10);
//   }
//
// Weights have the type of the input. Sizes that weights depend on must be known when the graph is
// built. Mistakes are INVALID_ARGUMENT in the scope, with the layer's name and the caller's line.

namespace millrace::layers {

// Elementwise; ops::relu, ops::tanh and their like fit.
using Activation = std::function<Expr(const Scope&, Expr, SourceLocation)>;

struct DenseOptions {
  Activation activation = nullptr;
  bool bias = true;
  Initializer kernel_initializer = initializers::glorot_uniform();
  Initializer bias_initializer = initializers::zeros();
};
// activation(x kernel + bias) along the last dimension: [..., n] to [..., units].
Expr dense(const Scope& scope, Variables& variables, std::string_view name, Expr x, int64_t units,
           const DenseOptions& options = {}, SourceLocation where = SourceLocation::current());

struct Conv2dOptions {
  int64_t stride = 1;
  std::string padding = "SAME";  // or "VALID"
  Activation activation = nullptr;
  bool bias = true;
  Initializer kernel_initializer = initializers::glorot_uniform();
  Initializer bias_initializer = initializers::zeros();
};
// Images [batch, height, width, channels] with `filters` windows of `size` by `size`.
Expr conv2d(const Scope& scope, Variables& variables, std::string_view name, Expr x,
            int64_t filters, int64_t size, const Conv2dOptions& options = {},
            SourceLocation where = SourceLocation::current());

// Windows of `size` by `size`, side by side unless `stride` says otherwise.
struct PoolOptions {
  int64_t stride = 0;  // 0: size
  std::string padding = "VALID";
};
Expr max_pool2d(const Scope& scope, Expr x, int64_t size, const PoolOptions& options = {},
                SourceLocation where = SourceLocation::current());
Expr avg_pool2d(const Scope& scope, Expr x, int64_t size, const PoolOptions& options = {},
                SourceLocation where = SourceLocation::current());
// [batch, ...] to [batch, n].
Expr flatten(const Scope& scope, Expr x, SourceLocation where = SourceLocation::current());

struct BatchNormOptions {
  // Training: by mean and variance of this batch, which also move the averages that are used
  // otherwise. The moves are in Variables::updates(), which Optimizer::minimize() runs; in a branch
  // or loop body training is UNIMPLEMENTED.
  bool training = false;
  double momentum = 0.99;
  double epsilon = 1e-3;
};
// gamma (x - mean) / sqrt(variance + epsilon) + beta, for each channel, the last dimension.
Expr batch_norm(const Scope& scope, Variables& variables, std::string_view name, Expr x,
                const BatchNormOptions& options = {},
                SourceLocation where = SourceLocation::current());
// The same by mean and variance of each vector along the last dimension.
Expr layer_norm(const Scope& scope, Variables& variables, std::string_view name, Expr x,
                double epsilon = 1e-5, SourceLocation where = SourceLocation::current());

struct DropoutOptions {
  bool training = false;
  // With the scope's names decides what is dropped; 0: differently in every session.
  int64_t seed = 1;
};
// Training: each element is zero with probability `rate`, 0 <= rate < 1, and divided by 1 - rate
// otherwise. Else x.
Expr dropout(const Scope& scope, Expr x, double rate, const DropoutOptions& options = {},
             SourceLocation where = SourceLocation::current());

struct EmbeddingTableOptions {
  DType dtype = DType::kFloat;
  Initializer initializer = initializers::uniform(-0.05, 0.05);
};
// Rows of a table [size, width], chosen by `ids`. The gradient of the table is rows.
Expr embedding(const Scope& scope, Variables& variables, std::string_view name, Expr ids,
               int64_t size, int64_t width, const EmbeddingTableOptions& options = {},
               SourceLocation where = SourceLocation::current());

}  // namespace millrace::layers
