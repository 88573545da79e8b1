// LogUniformCandidateSampler and UniformCandidateSampler draw classes for sampled losses;
// ComputeAccidentalHits finds those that happen to be a true class.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/random/distributions.h"
#include "millrace/ops/random/random_state.h"
#include "millrace/ops/random/register.h"

namespace millrace {
namespace {

Status check_true_classes(const PartialShape& shape, int64_t num_true) {
  if (!shape.rank_known()) return ok_status();
  if (shape.rank() == 2 && (!shape.dim_known(1) || shape.dim(1) == num_true)) return ok_status();
  return invalid_argument("true_classes must have shape [batch_size,", num_true, "], got ", shape);
}

Status sampler_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const int64_t num_true, c.attr<int64_t>("num_true"));
  MR_TRY_ASSIGN(const int64_t num_sampled, c.attr<int64_t>("num_sampled"));
  MR_TRY(check_true_classes(c.input(0), num_true));
  const int64_t batch = c.input(0).rank_known() ? c.input(0).dim(0) : PartialShape::kUnknownDim;
  const int64_t counts[] = {batch, num_true};
  MR_TRY_ASSIGN(PartialShape true_counts, PartialShape::make(counts));
  c.set_output(0, {num_sampled});
  c.set_output(1, std::move(true_counts));
  c.set_output(2, {num_sampled});
  return ok_status();
}

// Class k has probability log((k + 2) / (k + 1)) / log(range + 1).
class LogUniform {
 public:
  explicit LogUniform(int64_t range)
      : range_(range), log_range_(std::log1p(static_cast<double>(range))) {}
  int64_t sample(PhiloxWords& words) const {
    const uint32_t high = words.next();
    const double u = uniform_double(high, words.next());
    // Rounding may lead one past the end, which for the largest ranges is past int64.
    return (static_cast<int64_t>(std::min(std::exp(u * log_range_), 0x1p62)) - 1) % range_;
  }
  float probability(int64_t k) const {
    const auto x = static_cast<double>(k);
    return static_cast<float>(std::log((x + 2.0) / (x + 1.0)) / log_range_);
  }

 private:
  int64_t range_;
  double log_range_;
};

class UniformClasses {
 public:
  explicit UniformClasses(int64_t range)
      : range_(static_cast<uint64_t>(range)),
        probability_(static_cast<float>(1.0 / static_cast<double>(range))) {}
  int64_t sample(PhiloxWords& words) const {
    // Values below `skewed` would make the first remainders a little more likely.
    const uint64_t skewed = (std::numeric_limits<uint64_t>::max() % range_ + 1) % range_;
    uint64_t bits = words.next64();
    while (bits < skewed) bits = words.next64();
    return static_cast<int64_t>(bits % range_);
  }
  float probability(int64_t) const { return probability_; }

 private:
  uint64_t range_;
  float probability_;
};

// How often a class of probability p is expected among `drawn` classes picked in `tries` tries.
float expected_count(float p, int64_t drawn, int64_t tries) {
  if (tries == drawn) return p * static_cast<float>(drawn);
  // 1 - (1 - p)^tries, without losing small numbers.
  return -std::expm1(static_cast<float>(tries) * std::log1p(-p));
}

template <class Distribution>
class CandidateSampler final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(RandomSource source, RandomSource::make(node));
    MR_TRY_ASSIGN(const int64_t num_true, node.attr<int64_t>("num_true"));
    MR_TRY_ASSIGN(const int64_t num_sampled, node.attr<int64_t>("num_sampled"));
    MR_TRY_ASSIGN(const int64_t range, node.attr<int64_t>("range_max"));
    MR_TRY_ASSIGN(const bool unique, node.attr<bool>("unique"));
    if (unique && num_sampled > range) {
      return invalid_argument("cannot draw num_sampled = ", num_sampled,
                              " different classes out of range_max = ", range);
    }
    return std::unique_ptr<Kernel>(
        new CandidateSampler(std::move(source), num_true, num_sampled, range, unique));
  }
  CandidateSampler(RandomSource source, int64_t num_true, int64_t num_sampled, int64_t range,
                   bool unique)
      : source_(std::move(source)),
        num_true_(num_true),
        num_sampled_(num_sampled),
        range_(range),
        unique_(unique),
        distribution_(range) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor& true_classes = ctx.input(0);
    MR_TRY(check_true_classes(true_classes.shape(), num_true_));
    const std::span<const int64_t> classes = true_classes.data<int64_t>();
    for (int64_t k : classes) {
      if (k < 0 || k >= range_) {
        return invalid_argument("true class ", k, " is out of range [0, ", range_, ")");
      }
    }
    MR_TRY_ASSIGN(Tensor * sampled, ctx.allocate_output(0, Shape{num_sampled_}));
    MR_TRY_ASSIGN(Tensor * true_counts, ctx.allocate_output(1, true_classes.shape()));
    MR_TRY_ASSIGN(Tensor * sampled_counts, ctx.allocate_output(2, Shape{num_sampled_}));
    const std::span<int64_t> out = sampled->mutable_data<int64_t>();
    MR_TRY_ASSIGN(const Philox stream,
                  source_.reserve(ctx, static_cast<uint64_t>(num_sampled_) * 512));
    MR_TRY_ASSIGN(const int64_t tries, draw(ctx, stream, out));
    count(classes, tries, true_counts->mutable_data<float>());
    count(out, tries, sampled_counts->mutable_data<float>());
    return ok_status();
  }

 private:
  // Fills `out`; the number of tries it took.
  Result<int64_t> draw(const KernelContext& ctx, const Philox& stream,
                       std::span<int64_t> out) const {
    PhiloxWords words(stream);
    std::unordered_set<int64_t> used;
    int64_t tries = 0;
    for (size_t picked = 0; picked < out.size(); ++tries) {
      // The last few classes of a range may take long to come up.
      if (tries % 65536 == 0 && ctx.cancel() != nullptr && ctx.cancel()->cancelled()) {
        return ctx.cancel()->status();
      }
      const int64_t k = distribution_.sample(words);
      if (!unique_ || used.insert(k).second) out[picked++] = k;
    }
    return tries;
  }

  void count(std::span<const int64_t> classes, int64_t tries, std::span<float> out) const {
    for (size_t i = 0; i < classes.size(); ++i) {
      out[i] = expected_count(distribution_.probability(classes[i]), num_sampled_, tries);
    }
  }

  RandomSource source_;
  int64_t num_true_;
  int64_t num_sampled_;
  int64_t range_;
  bool unique_;
  Distribution distribution_;
};

Status hits_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const int64_t num_true, c.attr<int64_t>("num_true"));
  MR_TRY(check_true_classes(c.input(0), num_true));
  MR_TRY(c.with_rank(1, 1).status());
  for (int i = 0; i < 3; ++i) c.set_output(i, PartialShape::of_rank(1));
  return ok_status();
}

class AccidentalHits final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const int64_t num_true, node.attr<int64_t>("num_true"));
    return std::unique_ptr<Kernel>(new AccidentalHits(num_true));
  }
  explicit AccidentalHits(int64_t num_true) : num_true_(num_true) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY(check_true_classes(ctx.input(0).shape(), num_true_));
    MR_TRY(expect_rank(ctx, 1, 1));
    const int64_t batch = ctx.input(0).dim(0);
    if (batch - 1 > std::numeric_limits<int32_t>::max()) {
      return invalid_argument("row numbers do not fit in int32: true_classes has shape ",
                              ctx.input(0).shape());
    }
    std::unordered_map<int64_t, int64_t> position;
    const std::span<const int64_t> sampled = ctx.input(1).data<int64_t>();
    for (size_t i = 0; i < sampled.size(); ++i) position[sampled[i]] = static_cast<int64_t>(i);
    std::vector<int32_t> rows;
    std::vector<int64_t> ids;
    const std::span<const int64_t> classes = ctx.input(0).data<int64_t>();
    for (size_t i = 0; i < classes.size(); ++i) {
      const auto found = position.find(classes[i]);
      if (found == position.end()) continue;
      rows.push_back(static_cast<int32_t>(static_cast<int64_t>(i) / num_true_));
      ids.push_back(found->second);
    }
    const Shape shape = {static_cast<int64_t>(ids.size())};
    MR_TRY_ASSIGN(Tensor * indices, ctx.allocate_output(0, shape));
    MR_TRY_ASSIGN(Tensor * hits, ctx.allocate_output(1, shape));
    MR_TRY_ASSIGN(Tensor * weights, ctx.allocate_output(2, shape));
    std::ranges::copy(rows, indices->mutable_data<int32_t>().begin());
    std::ranges::copy(ids, hits->mutable_data<int64_t>().begin());
    std::ranges::fill(weights->mutable_data<float>(), -std::numeric_limits<float>::max());
    return ok_status();
  }

 private:
  int64_t num_true_;
};

template <class Distribution>
void register_sampler(Registry& registry, const char* name, const char* doc) {
  registry.add({.name = name,
                .doc = doc,
                .inputs = {{"true_classes", "int64"}},
                .outputs = {{"sampled_candidates", "int64"},
                            {"true_expected_count", "float"},
                            {"sampled_expected_count", "float"}},
                .attrs = {{"num_true", "int >= 1"},
                          {"num_sampled", "int >= 1"},
                          {"unique", "bool", "Draws no class twice."},
                          {"range_max", "int >= 1", "Classes are in [0, range_max)."},
                          {"seed", "int = 0"},
                          {"seed2", "int = 0"}},
                .traits = {.stateful = true, .cannot_differentiate = true, .cost = 40},
                .shape = sampler_shape});
  registry.kernel<CandidateSampler<Distribution>>(name, DeviceKind::kCpu);
}

}  // namespace

void register_candidate_samplers(Registry& registry) {
  register_sampler<LogUniform>(
      registry, "LogUniformCandidateSampler",
      "Classes drawn so that small numbers are likely: for vocabularies sorted by frequency.");
  register_sampler<UniformClasses>(registry, "UniformCandidateSampler",
                                   "Classes drawn with equal probability.");
  registry.add({.name = "ComputeAccidentalHits",
                .doc = "Which sampled classes are among the true ones: row, position among the "
                       "samples, and a weight that makes their logits vanish.",
                .inputs = {{"true_classes", "int64"}, {"sampled_candidates", "int64"}},
                .outputs = {{"indices", "int32"}, {"ids", "int64"}, {"weights", "float"}},
                .attrs = {{"num_true", "int"}, {"seed", "int = 0"}, {"seed2", "int = 0"}},
                .traits = {.cannot_differentiate = true, .cost = 20},
                .shape = hits_shape});
  registry.kernel<AccidentalHits>("ComputeAccidentalHits", DeviceKind::kCpu);
}

}  // namespace millrace
