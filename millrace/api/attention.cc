#include "millrace/api/attention.h"

#include <cmath>

#include "millrace/api/layer_support.h"
#include "millrace/api/layers.h"

namespace millrace::layers {
namespace {

// What a score gets where a query may not look: far below all others, and finite in every type.
double forbidden(DType dtype) { return dtype == DType::kHalf ? -3e4 : -1e9; }

Expr scores(Expr query, Expr key, double scale) {
  return call("BatchMatMulV2", {query, key}, {{"adj_y", true}}) * scale;
}

Expr attend(Expr query, Expr key, Expr value, Expr mask, double size) {
  Expr logits = scores(query, key, 1 / std::sqrt(size));
  if (mask.valid()) {
    Expr shut = 1.0 - cast(mask, logits.dtype());
    logits = logits + shut * forbidden(logits.dtype());
  }
  return call("BatchMatMulV2", {call("Softmax", {logits}), value});
}

// x with dimensions 0 and 1 as they are and `last` instead of the others.
Expr keep_two(OpBuilder& b, Expr x, std::initializer_list<int64_t> last) {
  Expr two = call("Slice", {shape_of(x, DType::kInt64), b.constant(Tensor::vector<int64_t>({0})),
                            b.constant(Tensor::vector<int64_t>({2}))});
  return reshape(x, concat({two, b.constant(Tensor::vector<int64_t>(last))}, 0));
}

Expr swap_middle(OpBuilder& b, Expr x) { return transpose(x, int32_vector(b, {0, 2, 1, 3})); }

}  // namespace

Expr attention(const Scope& scope, Expr query, Expr key, Expr value, Expr mask,
               SourceLocation where) {
  if (!scope.ok()) return Expr();
  return scope.sub_scope("attention").build(where, [&](GraphBuilder& b) {
    query = b.import(query);
    const PartialShape shape = query.shape();
    const int64_t size = shape.rank() >= 1 ? shape.dim(shape.rank() - 1) : -1;
    if (size <= 0) {
      b.fail(invalid_argument("attention at ", where,
                              ": the last dimension of query must be known, its shape is ", shape));
      return Expr();
    }
    return attend(query, key, value, mask, static_cast<double>(size));
  });
}

Expr multi_head_attention(const Scope& scope, Variables& variables, std::string_view name,
                          Expr query, Expr memory, int64_t heads, const MultiHeadOptions& options,
                          SourceLocation where) {
  Layer layer(scope, variables, "multi_head_attention", name, where);
  const int64_t inputs = layer.known_last(query, "query");
  const int64_t units = options.units == 0 ? inputs : options.units;
  if (!layer.positive(heads, "heads") || !layer.positive(units, "units")) return Expr();
  if (units % heads != 0) {
    return layer.fail(
        invalid_argument("units must be a multiple of heads, got ", units, " and ", heads));
  }
  if (query.shape().rank() != 3) {
    return layer.fail(
        invalid_argument("query must have 3 dimensions, its shape is ", query.shape()));
  }
  const int64_t size = units / heads;
  DenseOptions dense_options;
  dense_options.kernel_initializer = options.kernel_initializer;
  auto project = [&](Expr x, std::string_view part) {
    return dense(scope, variables, str_cat(name, "/", part), x, units, dense_options, where);
  };
  Expr q = project(query, "query"), k = project(memory, "key"), v = project(memory, "value");
  Expr joined = layer.build([&](GraphBuilder& b) {
    auto split = [&](Expr x) { return swap_middle(b, keep_two(b, x, {heads, size})); };
    Expr y = attend(split(q), split(k), split(v), options.mask, static_cast<double>(size));
    return keep_two(b, swap_middle(b, y), {units});
  });
  return project(joined, "output");
}

}  // namespace millrace::layers
