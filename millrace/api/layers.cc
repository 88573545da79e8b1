#include "millrace/api/layers.h"

#include <limits>

#include "millrace/api/layer_support.h"

namespace millrace::layers {
namespace {

// x with as many dimensions before the last as it has, made one: [..., n] to [?, n].
Expr as_matrix(Expr x, int64_t columns, GraphBuilder& b) {
  return reshape(x, b.constant(Tensor::vector<int64_t>({-1, columns})));
}

// All dimensions but the last of `like`, then `size`.
Expr with_last(Expr x, Expr like, int64_t size, GraphBuilder& b) {
  PartialShape shape = like.shape();
  int unknown = 0;
  std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
  dims.back() = size;
  for (int64_t d : dims) unknown += d < 0 ? 1 : 0;
  if (unknown <= 1)
    return reshape(x, b.constant(Tensor::vector<int64_t>(std::span<const int64_t>(dims))));
  Expr leading =
      call("Slice", {shape_of(like, DType::kInt64), b.constant(Tensor::vector<int64_t>({0})),
                     b.constant(Tensor::vector<int64_t>({shape.rank() - 1}))});
  return reshape(x, concat({leading, b.constant(Tensor::vector<int64_t>({size}))}, 0));
}

Expr pool(const Scope& scope, const char* op, std::string_view name, Expr x, int64_t size,
          const PoolOptions& options, SourceLocation where) {
  const int64_t stride = options.stride == 0 ? size : options.stride;
  return scope.sub_scope(name).build(where, [&](GraphBuilder& b) {
    return call(op, {b.import(x)},
                {{"ksize", std::vector<int64_t>{1, size, size, 1}},
                 {"strides", std::vector<int64_t>{1, stride, stride, 1}},
                 {"padding", options.padding}});
  });
}

}  // namespace

Expr dense(const Scope& scope, Variables& variables, std::string_view name, Expr x, int64_t units,
           const DenseOptions& options, SourceLocation where) {
  Layer layer(scope, variables, "dense", name, where);
  const int64_t inputs = layer.known_last(x, "x");
  if (!layer.positive(units, "units")) return Expr();
  Expr kernel = layer.weight("kernel", {inputs, units}, x.dtype(), options.kernel_initializer);
  Expr bias =
      options.bias ? layer.weight("bias", {units}, x.dtype(), options.bias_initializer) : Expr();
  return layer.build([&](GraphBuilder& b) {
    const bool flat = x.shape().rank() == 2;
    Expr y = matmul(flat ? x : as_matrix(x, inputs, b), kernel);
    if (bias.valid()) y = call("BiasAdd", {y, bias});
    if (!flat) y = with_last(y, x, units, b);
    return options.activation ? options.activation(layer.scope(), y, where) : y;
  });
}

Expr conv2d(const Scope& scope, Variables& variables, std::string_view name, Expr x,
            int64_t filters, int64_t size, const Conv2dOptions& options, SourceLocation where) {
  Layer layer(scope, variables, "conv2d", name, where);
  const int64_t channels = layer.known_last(x, "x");
  if (!layer.positive(filters, "filters") || !layer.positive(size, "size") ||
      !layer.positive(options.stride, "stride")) {
    return Expr();
  }
  Expr kernel = layer.weight("kernel", {size, size, channels, filters}, x.dtype(),
                             options.kernel_initializer);
  Expr bias =
      options.bias ? layer.weight("bias", {filters}, x.dtype(), options.bias_initializer) : Expr();
  return layer.build([&](GraphBuilder&) {
    Expr y = call("Conv2D", {x, kernel},
                  {{"strides", std::vector<int64_t>{1, options.stride, options.stride, 1}},
                   {"padding", options.padding}});
    if (bias.valid()) y = call("BiasAdd", {y, bias});
    return options.activation ? options.activation(layer.scope(), y, where) : y;
  });
}

Expr max_pool2d(const Scope& scope, Expr x, int64_t size, const PoolOptions& options,
                SourceLocation where) {
  return pool(scope, "MaxPool", "max_pool2d", x, size, options, where);
}

Expr avg_pool2d(const Scope& scope, Expr x, int64_t size, const PoolOptions& options,
                SourceLocation where) {
  return pool(scope, "AvgPool", "avg_pool2d", x, size, options, where);
}

Expr flatten(const Scope& scope, Expr x, SourceLocation where) {
  return scope.sub_scope("flatten").build(where, [&](GraphBuilder& b) {
    x = b.import(x);
    PartialShape shape = x.shape();
    int64_t inner = 1;
    for (int i = 1; i < shape.rank(); ++i)
      inner = shape.dim_known(i) && inner >= 0 ? inner * shape.dim(i) : -1;
    if (shape.rank() < 1) inner = -1;
    if (inner >= 0)
      return reshape(
          x, b.constant(Tensor::vector<int64_t>({shape.dim_known(0) ? shape.dim(0) : -1, inner})));
    Expr batch = call("Slice", {shape_of(x), int32_vector(b, {0}), int32_vector(b, {1})});
    return reshape(x, concat({batch, int32_vector(b, {-1})}, 0));
  });
}

Expr batch_norm(const Scope& scope, Variables& variables, std::string_view name, Expr x,
                const BatchNormOptions& options, SourceLocation where) {
  Layer layer(scope, variables, "batch_norm", name, where);
  const int64_t channels = layer.known_last(x, "x");
  if (!scope.ok()) return Expr();
  if (options.training && scope.builder().depth() > 0) {
    return layer.fail(unimplemented("training in a branch or loop body"));
  }
  const DType dtype = x.dtype();
  Expr gamma = layer.weight("gamma", {channels}, dtype, initializers::ones());
  Expr beta = layer.weight("beta", {channels}, dtype, initializers::zeros());
  const Variable* moving_mean =
      layer.variable("moving_mean", {channels}, dtype, initializers::zeros(), {.trainable = false});
  const Variable* moving_variance = layer.variable("moving_variance", {channels}, dtype,
                                                   initializers::ones(), {.trainable = false});
  if (!scope.ok()) return Expr();
  return layer.build([&](GraphBuilder& b) {
    Moments moments;
    if (options.training) {
      std::vector<int32_t> axes;
      for (int i = 0; i + 1 < x.shape().rank(); ++i) axes.push_back(i);
      moments = moments_of(x, b.constant(Tensor::vector<int32_t>(std::span<const int32_t>(axes))),
                           /*keep_dims=*/false);
      auto move = [&](const Variable& average, Expr now) {
        Expr gap = now - average.read(layer.scope(), where);
        variables.add_update(
            average.assign_add(layer.scope(), gap * (1 - options.momentum), where));
      };
      move(*moving_mean, moments.mean);
      move(*moving_variance, moments.variance);
    } else {
      moments = {moving_mean->read(layer.scope(), where),
                 moving_variance->read(layer.scope(), where)};
    }
    // One multiplication and one addition per element.
    Expr scale = gamma * rsqrt(moments.variance + options.epsilon);
    return x * scale + (beta - moments.mean * scale);
  });
}

Expr layer_norm(const Scope& scope, Variables& variables, std::string_view name, Expr x,
                double epsilon, SourceLocation where) {
  Layer layer(scope, variables, "layer_norm", name, where);
  const int64_t size = layer.known_last(x, "x");
  Expr gamma = layer.weight("gamma", {size}, x.dtype(), initializers::ones());
  Expr beta = layer.weight("beta", {size}, x.dtype(), initializers::zeros());
  return layer.build([&](GraphBuilder& b) {
    Moments moments = moments_of(x, int32_vector(b, {-1}), /*keep_dims=*/true);
    return (x - moments.mean) * rsqrt(moments.variance + epsilon) * gamma + beta;
  });
}

Expr dropout(const Scope& scope, Expr x, double rate, const DropoutOptions& options,
             SourceLocation where) {
  if (!(rate >= 0 && rate < 1)) {
    scope.builder().fail(
        invalid_argument("dropout at ", where, ": rate must be in [0, 1), got ", rate));
    return Expr();
  }
  if (!options.training || rate == 0) return x;
  return scope.sub_scope("dropout").build(where, [&](GraphBuilder& b) {
    x = b.import(x);
    // Names begin anew in a body. Bodies of one depth follow each other, each adding a function.
    std::string place = b.context().scope;
    if (b.depth() > 0) {
      place = str_cat(b.depth(), ":", b.graph().functions().names().size(), ":", place);
    }
    AttrMap attrs = derive_seed(options.seed, place).attrs();
    attrs.set("dtype", x.dtype());
    Expr drawn = call("RandomUniform", {shape_of(x)}, std::move(attrs));
    Expr kept = greater_equal(drawn, constant_like(drawn, rate));
    return x * (1 / (1 - rate)) * cast(kept, x.dtype());
  });
}

Expr embedding(const Scope& scope, Variables& variables, std::string_view name, Expr ids,
               int64_t size, int64_t width, const EmbeddingTableOptions& options,
               SourceLocation where) {
  Layer layer(scope, variables, "embedding", name, where);
  if (!layer.positive(size, "size") || !layer.positive(width, "width")) return Expr();
  const Variable* table =
      layer.variable("table", {size, width}, options.dtype, options.initializer);
  if (!scope.ok()) return Expr();
  return layer.build([&](GraphBuilder& b) {
    return call("ResourceGather", {b.import(table->handle), ids}, {{"dtype", options.dtype}});
  });
}

}  // namespace millrace::layers
