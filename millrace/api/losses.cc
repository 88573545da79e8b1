#include "millrace/api/losses.h"

namespace millrace::layers {
namespace {

Expr flat(OpBuilder& b, Expr x) { return reshape(x, int32_vector(b, {-1})); }
Expr mean_of_all(OpBuilder& b, Expr x) { return call("Mean", {flat(b, x), int32_scalar(b, 0)}); }

// [..., n] to [?, n].
Expr as_rows(OpBuilder& b, Expr x) {
  if (x.shape().rank() == 2) return x;
  Expr last = call("StridedSlice",
                   {shape_of(x), int32_vector(b, {-1}), int32_vector(b, {0}), int32_vector(b, {1})},
                   {{"end_mask", int64_t{1}}});
  return reshape(x, concat({int32_vector(b, {-1}), last}, 0));
}

bool is_class_number(Expr labels) {
  return labels.dtype() == DType::kInt32 || labels.dtype() == DType::kInt64;
}

}  // namespace

Expr softmax_cross_entropy(const Scope& scope, Expr logits, Expr labels, SourceLocation where) {
  if (!scope.ok()) return Expr();
  return scope.sub_scope("softmax_cross_entropy").build(where, [&](GraphBuilder& b) {
    logits = b.import(logits);
    labels = b.import(labels);
    Expr each =
        is_class_number(labels)
            ? call("SparseSoftmaxCrossEntropyWithLogits",
                   {as_rows(b, logits), labels.shape().rank() == 1 ? labels : flat(b, labels)})
            : call("SoftmaxCrossEntropyWithLogits", {as_rows(b, logits), as_rows(b, labels)});
    return call("Mean", {each, int32_scalar(b, 0)});
  });
}

Expr mean_squared_error(const Scope& scope, Expr predictions, Expr targets, SourceLocation where) {
  if (!scope.ok()) return Expr();
  return scope.sub_scope("mean_squared_error").build(where, [&](GraphBuilder& b) {
    Expr gap = b.import(predictions) - b.import(targets);
    return mean_of_all(b, square(gap));
  });
}

Expr accuracy(const Scope& scope, Expr logits, Expr labels, SourceLocation where) {
  if (!scope.ok()) return Expr();
  return scope.sub_scope("accuracy").build(where, [&](GraphBuilder& b) {
    Expr best = call("ArgMax", {b.import(logits), int32_scalar(b, -1)});
    Expr right = equal(best, cast(b.import(labels), DType::kInt64));
    return mean_of_all(b, cast(right, DType::kFloat));
  });
}

}  // namespace millrace::layers
