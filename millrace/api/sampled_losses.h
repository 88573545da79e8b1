#pragma once

#include <optional>
#include <vector>

#include "millrace/api/embedding.h"
#include "millrace/api/scope.h"

// Losses for a great many classes: each step compares the true classes with a few sampled ones
// instead of all (Jean et al. 2014; Gutmann and Hyvärinen 2010). For training; evaluation uses the
// full softmax or sigmoid.

namespace millrace {

// What a candidate sampler gives (ops::log_uniform_candidate_sampler() and its like).
struct SampledClasses {
  Expr candidates;              // [num_sampled], int64
  Expr true_expected_count;     // [batch, num_true]
  Expr sampled_expected_count;  // [num_sampled]
};

struct SampledLossOptions {
  int64_t num_true = 1;
  // Not given: different classes, drawn with a log-uniform distribution, which suits classes sorted
  // by falling frequency, from these seeds (both 0: others in every session).
  std::optional<SampledClasses> sampled = {};
  int64_t seed = 0;
  int64_t seed2 = 0;
  // Leaves out samples that are a true class of the example. Not given: yes for the softmax, no for
  // NCE (which with it learns log odds instead of log probabilities).
  std::optional<bool> remove_accidental_hits = {};
  // How the rows lie in several weights and biases.
  PartitionStrategy partition = PartitionStrategy::kMod;
};

// The loss of each example, [batch]. `weights` ([num_classes, dim]) and `biases` ([num_classes])
// are tables as embedding_lookup() takes them, whose gradients are rows; `labels` are the true
// classes ([batch, num_true], int32 or int64; each has 1 / num_true of the probability), `inputs`
// the activations ([batch, dim]).
Expr sampled_softmax_loss(const Scope& scope, const std::vector<Expr>& weights,
                          const std::vector<Expr>& biases, Expr labels, Expr inputs,
                          int64_t num_sampled, int64_t num_classes,
                          const SampledLossOptions& options = {},
                          SourceLocation where = SourceLocation::current());
// Noise-contrastive estimation: tells true classes from sampled ones, each by itself.
Expr nce_loss(const Scope& scope, const std::vector<Expr>& weights, const std::vector<Expr>& biases,
              Expr labels, Expr inputs, int64_t num_sampled, int64_t num_classes,
              const SampledLossOptions& options = {},
              SourceLocation where = SourceLocation::current());

}  // namespace millrace
