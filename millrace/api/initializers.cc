#include "millrace/api/initializers.h"

#include <algorithm>
#include <cmath>

#include "millrace/api/control_flow.h"

namespace millrace {
namespace initializers {
namespace {

Seed chosen(int64_t own, Seed of_variable) { return own == 0 ? of_variable : Seed{own, 0}; }

Expr shape_tensor(const Scope& scope, const Shape& shape) {
  return scope.constant(Tensor::vector<int64_t>(shape.dims()));
}

Expr filled(const Scope& scope, const Shape& shape, DType dtype, double value) {
  Expr number = cast(scope.constant(value), dtype);
  return fill(shape_tensor(scope, shape), number);
}

// `op` draws numbers of some standard distribution.
Expr draw(const Scope& scope, const char* op, const Shape& shape, DType dtype, Seed seed) {
  AttrMap attrs = seed.attrs();
  attrs.set("dtype", dtype);
  return call(op, {shape_tensor(scope, shape)}, std::move(attrs));
}

Initializer scaled(const char* op, double factor, double offset, int64_t seed) {
  return [=](const Scope& scope, const Shape& shape, DType dtype, Seed own) {
    return draw(scope, op, shape, dtype, chosen(seed, own)) * factor + offset;
  };
}

// The nearest orthonormal matrix to x, which has no fewer rows than columns, by the iteration of
// Newton and Schulz: x <- x (3 - x'x) / 2. It takes singular values from (0, sqrt(3)) to 1, small
// ones growing by half each time and those near 1 quadratically, so the limit holds for any matrix
// that a random one will ever be.
Expr orthonormal(const Scope& scope, Expr x) {
  constexpr int64_t kMaxIterations = 200;
  constexpr double kTolerance = 1e-13;
  OpBuilder& b = scope.builder();
  x = x / sqrt(sum(square(x), int32_vector(b, {0, 1})));
  LoopOptions options;
  options.maximum_iterations = kMaxIterations;
  std::vector<Expr> out = while_loop(
      scope, {x, scope.constant(1.0)},
      [&](const Scope&, const std::vector<Expr>& v) {
        return greater(v[1], constant_like(v[1], kTolerance));
      },
      [&](const Scope& s, const std::vector<Expr>& v) {
        Expr change = matmul(v[0], matmul(v[0], v[0], /*transpose_a=*/true)) - v[0];
        Expr largest = call("Max", {abs(change), int32_vector(s.builder(), {0, 1})});
        return std::vector<Expr>{v[0] - change * 0.5, largest};
      },
      options);
  return out.empty() ? Expr() : out[0];
}

}  // namespace

Initializer zeros() { return constant(0); }
Initializer ones() { return constant(1); }

Initializer constant(double value) {
  return [value](const Scope& scope, const Shape& shape, DType dtype, Seed) {
    return filled(scope, shape, dtype, value);
  };
}

Initializer value(Tensor tensor) {
  return [tensor = std::move(tensor)](const Scope& scope, const Shape&, DType, Seed) {
    return scope.constant(tensor);
  };
}

Initializer uniform(double low, double high, int64_t seed) {
  return scaled("RandomUniform", high - low, low, seed);
}

Initializer normal(double mean, double stddev, int64_t seed) {
  return scaled("RandomStandardNormal", stddev, mean, seed);
}

Initializer truncated_normal(double mean, double stddev, int64_t seed) {
  return scaled("TruncatedNormal", stddev, mean, seed);
}

Fans fans_of(const Shape& weights) {
  const int rank = weights.rank();
  if (rank == 0) return {};
  const auto last = static_cast<double>(weights.dim(rank - 1));
  if (rank == 1) return {last, last};
  double window = 1;
  for (int i = 0; i < rank - 2; ++i) window *= static_cast<double>(weights.dim(i));
  return {window * static_cast<double>(weights.dim(rank - 2)), window * last};
}

Initializer variance_scaling(const VarianceScaling& options) {
  return [options](const Scope& scope, const Shape& shape, DType dtype, Seed own) {
    // A normal distribution cut off at two standard deviations has this one left.
    constexpr double kTruncatedStddev = 0.87962566103423978;
    const Fans fans = fans_of(shape);
    double fan = options.fan == Fan::kIn ? fans.in : fans.out;
    if (options.fan == Fan::kAverage) fan = (fans.in + fans.out) / 2;
    const double stddev = std::sqrt(options.scale / std::max(fan, 1.0));
    Initializer distribution;
    switch (options.distribution) {
      case Distribution::kUniform:
        distribution = uniform(-std::sqrt(3.0) * stddev, std::sqrt(3.0) * stddev, options.seed);
        break;
      case Distribution::kNormal:
        distribution = normal(0, stddev, options.seed);
        break;
      case Distribution::kTruncatedNormal:
        distribution = truncated_normal(0, stddev / kTruncatedStddev, options.seed);
        break;
    }
    return distribution(scope, shape, dtype, own);
  };
}

Initializer glorot_uniform(int64_t seed) {
  return variance_scaling({1, Fan::kAverage, Distribution::kUniform, seed});
}
Initializer glorot_normal(int64_t seed) {
  return variance_scaling({1, Fan::kAverage, Distribution::kTruncatedNormal, seed});
}
Initializer he_uniform(int64_t seed) {
  return variance_scaling({2, Fan::kIn, Distribution::kUniform, seed});
}
Initializer he_normal(int64_t seed) {
  return variance_scaling({2, Fan::kIn, Distribution::kTruncatedNormal, seed});
}
Initializer lecun_normal(int64_t seed) {
  return variance_scaling({1, Fan::kIn, Distribution::kTruncatedNormal, seed});
}

Initializer orthogonal(double gain, int64_t seed) {
  return [=](const Scope& scope, const Shape& shape, DType dtype, Seed own) {
    if (shape.rank() < 2 || shape.num_elements() == 0) {
      scope.builder().fail(
          invalid_argument("an orthogonal initializer needs a matrix with elements, got ", shape));
      return Expr();
    }
    const int64_t columns = shape.dim(shape.rank() - 1), rows = shape.num_elements() / columns;
    const bool wide = rows < columns;
    const Shape tall = wide ? Shape{columns, rows} : Shape{rows, columns};
    Expr x = draw(scope, "RandomStandardNormal", tall, DType::kDouble, chosen(seed, own));
    x = orthonormal(scope, x) * gain;
    if (wide) x = transpose(x, int32_vector(scope.builder(), {1, 0}));
    return cast(reshape(x, shape_tensor(scope, shape)), dtype);
  };
}

Initializer identity(double gain) {
  return [gain](const Scope& scope, const Shape& shape, DType dtype, Seed) {
    if (shape.rank() != 2) {
      scope.builder().fail(invalid_argument("an identity initializer needs a matrix, got ", shape));
      return Expr();
    }
    auto numbers = [&](int axis) {
      return range(scope.constant(int64_t{0}), scope.constant(shape.dim(axis)),
                   scope.constant(int64_t{1}));
    };
    OpBuilder& b = scope.builder();
    Expr diagonal = equal(expand_dims(numbers(0), int32_scalar(b, 1)),
                          expand_dims(numbers(1), int32_scalar(b, 0)));
    return cast(diagonal, dtype) * gain;
  };
}

}  // namespace initializers
}  // namespace millrace
