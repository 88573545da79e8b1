#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/kernel/kernel.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/indices.h"
#include "millrace/ops/random/philox.h"
#include "millrace/ops/random/random_state.h"

// What the candidate samplers share. A sampler draws num_sampled classes out of [0, range_max) and
// tells how often each of these, and each true class, was to be expected among them.

namespace millrace {

class ShapeContext;

// A random number below n > 0, without bias.
uint32_t uniform_below(PhiloxWords& words, uint32_t n);
uint64_t uniform_below(PhiloxWords& words, uint64_t n);

// The probabilities of the classes.
class ClassDistribution {
 public:
  virtual ~ClassDistribution() = default;
  virtual int64_t sample(PhiloxWords& words) const = 0;
  // Of a class in range.
  virtual float probability(int64_t k) const = 0;
};

// INVALID_ARGUMENT when attribute `range_attr` is more than `max_range`, or too little for samples
// that all differ.
Status check_sampler(const AttrMap& attrs, std::string_view range_attr, int64_t max_range);
// The shape rule of all samplers.
Status sampler_shape(ShapeContext& c);

// A kernel that draws from a ClassDistribution.
class CandidateSampler : public Kernel {
 protected:
  // The attributes that all samplers have.
  struct Options {
    RandomSource source;
    int64_t num_true = 0;
    int64_t num_sampled = 0;
    bool unique = false;
    int64_t range = 0;
  };
  // With attribute `range_attr` as the number of classes, checked by check_sampler().
  static Result<Options> read_options(const KernelNode& node,
                                      std::string_view range_attr = "range_max",
                                      int64_t max_range = std::numeric_limits<int64_t>::max());

  explicit CandidateSampler(Options options) : options_(std::move(options)) {}
  const Options& options() const { return options_; }

  // Input 0. INVALID_ARGUMENT when its shape is wrong or a class is out of range.
  Result<Indices> true_classes(KernelContext& ctx) const;
  // Draws the samples and sets all outputs. Samples that must differ are drawn again until they do;
  // RESOURCE_EXHAUSTED where that takes too long.
  Status draw(KernelContext& ctx, const Indices& true_classes,
              const ClassDistribution& distribution) const;

 private:
  Result<int64_t> draw_classes(const KernelContext& ctx, const ClassDistribution& distribution,
                               std::span<int64_t> out) const;

  Options options_;
};

// The definition of a sampler, with the attributes that all have and its own ones.
OpSpec candidate_sampler_spec(std::string_view name, std::string_view doc,
                              std::vector<OpSpec::Attr> own_attrs);
OpSpec::Attr range_max_attr();

}  // namespace millrace
