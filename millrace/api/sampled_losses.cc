#include "millrace/api/sampled_losses.h"

namespace millrace {
namespace {

// What a loss is given.
struct Task {
  const std::vector<Expr>& weights;
  const std::vector<Expr>& biases;
  Expr labels;
  Expr inputs;
  int64_t num_sampled;
  int64_t num_classes;
  const SampledLossOptions& options;
};

// [batch, num_true + num_sampled] each; the true classes come first.
struct Logits {
  Expr logits;
  Expr labels;
};

SampledClasses draw_classes(const Task& task) {
  const SampledLossOptions& options = task.options;
  if (options.sampled) return *options.sampled;
  const std::vector<Expr> drawn = call_multi("LogUniformCandidateSampler", {task.labels},
                                             {{"num_true", options.num_true},
                                              {"num_sampled", task.num_sampled},
                                              {"unique", true},
                                              {"range_max", task.num_classes},
                                              {"seed", options.seed},
                                              {"seed2", options.seed2}});
  if (drawn.empty()) return {};
  return {drawn[0], drawn[1], drawn[2]};
}

Expr log_of_count(Expr count, DType dtype) {
  return cast(log(call("StopGradient", {count})), dtype);
}

// What is added to the logits of samples that are true classes, so that they vanish; 0 elsewhere.
Expr accidental_hits(const Task& task, Expr candidates, DType dtype) {
  OpBuilder& b = *candidates.builder();
  const std::vector<Expr> hits = call_multi("ComputeAccidentalHits", {task.labels, candidates},
                                            {{"num_true", task.options.num_true}});
  if (hits.empty()) return Expr();
  const Expr column = int32_vector(b, {-1, 1});
  const Expr places =
      concat({reshape(cast(hits[0], DType::kInt64), column), reshape(hits[1], column)}, 1);
  const Expr batch = call(
      "Slice", {shape_of(task.labels, DType::kInt64), int32_vector(b, {0}), int32_vector(b, {1})});
  const Expr shape = concat({batch, b.constant(Tensor::vector<int64_t>({task.num_sampled}))}, 0);
  // The weights are the lowest float, which would become infinite in a smaller type, and infinity
  // times a label of zero is not zero.
  Expr weights = hits[2];
  if (dtype == DType::kHalf) weights = call("Maximum", {weights, constant_like(weights, -3e4)});
  if (dtype == DType::kBFloat16) {
    weights = call("Maximum", {weights, constant_like(weights, -1e38)});
  }
  weights = cast(weights, dtype);
  return call("SparseToDense", {places, shape, weights, constant_like(weights, 0)},
              {{"validate_indices", false}});
}

Logits compute_logits(const Scope& scope, const Task& task, bool remove_hits,
                      SourceLocation where) {
  OpBuilder& b = scope.builder();
  const DType dtype = task.inputs.dtype();
  const SampledClasses sampled = draw_classes(task);
  const Expr candidates = cast(sampled.candidates, DType::kInt64);

  // One lookup for the true and the sampled classes.
  const Expr flat = reshape(task.labels, int32_vector(b, {-1}));
  const Expr ids = concat({flat, candidates}, 0);
  const EmbeddingOptions lookup = {.partition = task.options.partition};
  const Expr weights = embedding_lookup(scope, task.weights, ids, lookup, where);
  const Expr biases = embedding_lookup(scope, task.biases, ids, lookup, where);
  if (!scope.ok()) return {};
  const Expr zero = int32_vector(b, {0}), all = int32_vector(b, {-1}), split = shape_of(flat);
  const Expr true_weights =
      call("Slice", {weights, int32_vector(b, {0, 0}), concat({split, all}, 0)});
  const Expr sampled_weights =
      call("Slice", {weights, concat({split, zero}, 0), int32_vector(b, {-1, -1})});
  const Expr true_biases = call("Slice", {biases, zero, split});
  const Expr sampled_biases = call("Slice", {biases, split, all});

  const Expr labels_shape = shape_of(task.labels);
  const Expr dim = call("Slice", {shape_of(weights), int32_vector(b, {1}), int32_vector(b, {1})});
  const Expr per_example = reshape(true_weights, concat({labels_shape, dim}, 0));
  const Expr products = expand_dims(task.inputs, int32_scalar(b, 1)) * per_example;
  Expr true_logits = sum(products, int32_vector(b, {2})) + reshape(true_biases, labels_shape);
  Expr sampled_logits = matmul(task.inputs, sampled_weights, false, true) + sampled_biases;
  if (remove_hits) sampled_logits = sampled_logits + accidental_hits(task, candidates, dtype);

  // The chance to be among the samples is no merit of the class.
  true_logits = true_logits - log_of_count(sampled.true_expected_count, dtype);
  sampled_logits = sampled_logits - log_of_count(sampled.sampled_expected_count, dtype);
  const double share = 1.0 / static_cast<double>(task.options.num_true);
  const Expr labels = concat({ones_like(true_logits) * share, zeros_like(sampled_logits)}, 1);
  return {concat({true_logits, sampled_logits}, 1), call("StopGradient", {labels})};
}

Status check_task(const Task& task) {
  if (task.options.num_true < 1 || task.num_sampled < 1 || task.num_classes < 1) {
    return invalid_argument("num_true, num_sampled and num_classes must be 1 or more, got ",
                            task.options.num_true, ", ", task.num_sampled, " and ",
                            task.num_classes);
  }
  const PartialShape labels = task.labels.shape();
  if (labels.rank_known() && labels.rank() != 2) {
    return invalid_argument("labels must have shape [batch,", task.options.num_true, "], got ",
                            labels);
  }
  return ok_status();
}

// Builds the logits and hands them to `loss`, which gives the loss of each row.
template <class F>
Expr sampled_loss(const Scope& scope, const char* name, SourceLocation where, Task task,
                  bool remove_hits_by_default, F loss) {
  if (!scope.ok()) return Expr();
  const Scope inside = scope.sub_scope(scope.name_or(name));
  return inside.build(where, [&](GraphBuilder& b) {
    task.labels = b.import(task.labels);
    task.inputs = b.import(task.inputs);
    if (!b.status().ok()) return Expr();
    const Status status = check_task(task);
    if (!status.ok()) {
      b.fail(status.with_prefix(name).with_line(describe_origin(b.context().origin)));
      return Expr();
    }
    if (task.labels.dtype() != DType::kInt64) task.labels = cast(task.labels, DType::kInt64);
    const bool remove_hits = task.options.remove_accidental_hits.value_or(remove_hits_by_default);
    const Logits logits = compute_logits(inside, task, remove_hits, where);
    return b.status().ok() ? loss(logits) : Expr();
  });
}

}  // namespace

Expr sampled_softmax_loss(const Scope& scope, const std::vector<Expr>& weights,
                          const std::vector<Expr>& biases, Expr labels, Expr inputs,
                          int64_t num_sampled, int64_t num_classes,
                          const SampledLossOptions& options, SourceLocation where) {
  const Task task = {weights, biases, labels, inputs, num_sampled, num_classes, options};
  return sampled_loss(
      scope, "sampled_softmax_loss", where, task, /*remove_hits_by_default=*/true,
      [](const Logits& l) { return call("SoftmaxCrossEntropyWithLogits", {l.logits, l.labels}); });
}

Expr nce_loss(const Scope& scope, const std::vector<Expr>& weights, const std::vector<Expr>& biases,
              Expr labels, Expr inputs, int64_t num_sampled, int64_t num_classes,
              const SampledLossOptions& options, SourceLocation where) {
  const Task task = {weights, biases, labels, inputs, num_sampled, num_classes, options};
  return sampled_loss(scope, "nce_loss", where, task, /*remove_hits_by_default=*/false,
                      [](const Logits& l) {
                        // The cross entropy of sigmoid(logits) and the labels.
                        const Expr each = call("Softplus", {l.logits}) - l.logits * l.labels;
                        return sum(each, int32_vector(*each.builder(), {1}));
                      });
}

}  // namespace millrace
