#pragma once

#include <functional>

#include "millrace/api/scope.h"
#include "millrace/api/seed.h"

namespace millrace {

// Builds the first value of a variable. `seed` is the variable's own, see Variables.
using Initializer =
    std::function<Expr(const Scope& scope, const Shape& shape, DType dtype, Seed seed)>;

// The random ones take a seed: 0, and the variable's own counts; another number, and two variables
// with that number and one shape begin with the same values.
namespace initializers {

Initializer zeros();
Initializer ones();
Initializer constant(double value);
// This tensor, which has the variable's shape and type.
Initializer value(Tensor tensor);

// Evenly between `low` and `high`.
Initializer uniform(double low = -0.05, double high = 0.05, int64_t seed = 0);
Initializer normal(double mean = 0, double stddev = 0.05, int64_t seed = 0);
// Normal, drawn again where it is more than two `stddev` away from `mean`.
Initializer truncated_normal(double mean = 0, double stddev = 0.05, int64_t seed = 0);

// How many numbers an element of a layer's input and output is connected to, by the shape of its
// weights: the last two dimensions are input and output, those before them a window.
struct Fans {
  double in = 1;
  double out = 1;
};
Fans fans_of(const Shape& weights);

enum class Fan { kIn, kOut, kAverage };
enum class Distribution { kUniform, kNormal, kTruncatedNormal };
struct VarianceScaling {
  double scale = 1;
  Fan fan = Fan::kIn;
  Distribution distribution = Distribution::kTruncatedNormal;
  int64_t seed = 0;
};
// Mean 0 and variance scale / fan: signals keep their size from layer to layer.
Initializer variance_scaling(const VarianceScaling& options = {});
Initializer glorot_uniform(int64_t seed = 0);  // 1 / average fan
Initializer glorot_normal(int64_t seed = 0);
Initializer he_uniform(int64_t seed = 0);  // 2 / fan in, for relu
Initializer he_normal(int64_t seed = 0);
Initializer lecun_normal(int64_t seed = 0);  // 1 / fan in

// `gain` times a random matrix whose columns (or rows, whichever are fewer) are orthonormal, of all
// dimensions but the last by the last. Needs at least two dimensions.
Initializer orthogonal(double gain = 1, int64_t seed = 0);
// `gain` on the diagonal of a matrix.
Initializer identity(double gain = 1);

}  // namespace initializers
}  // namespace millrace
