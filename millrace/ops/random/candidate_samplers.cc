// What all candidate samplers do, those whose probabilities are a formula, and
// ComputeAccidentalHits, which finds the samples that happen to be a true class.

#include "millrace/ops/random/candidate_samplers.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "millrace/graph/shape_context.h"
#include "millrace/ops/random/distributions.h"

namespace millrace {
namespace {

Status check_true_classes(const PartialShape& shape, int64_t num_true) {
  if (!shape.rank_known()) return ok_status();
  if (shape.rank() == 2 && (!shape.dim_known(1) || shape.dim(1) == num_true)) return ok_status();
  return invalid_argument("true_classes must have shape [batch_size,", num_true, "], got ", shape);
}

// How often a class of probability p is expected among `drawn` classes picked in `tries` tries.
float expected_count(float p, int64_t drawn, int64_t tries) {
  if (tries == drawn) return p * static_cast<float>(drawn);
  // 1 - (1 - p)^tries, without losing small numbers.
  return -std::expm1(static_cast<float>(tries) * std::log1p(-p));
}

// The smallest remainders of T's numbers by n come up once too often: numbers below the first
// multiple of n that leaves a multiple of n of them are drawn again.
template <class T, class Draw>
T below(T n, Draw draw) {
  const T skewed = (std::numeric_limits<T>::max() % n + 1) % n;
  T bits = draw();
  while (bits < skewed) bits = draw();
  return bits % n;
}

}  // namespace

Status check_sampler(const AttrMap& attrs, std::string_view range_attr, int64_t max_range) {
  MR_TRY_ASSIGN(const int64_t num_sampled, read_attr<int64_t>(attrs, "num_sampled"));
  MR_TRY_ASSIGN(const bool unique, read_attr<bool>(attrs, "unique"));
  MR_TRY_ASSIGN(const int64_t range, read_attr<int64_t>(attrs, range_attr));
  if (range > max_range) {
    return invalid_argument(range_attr, " must be at most ", max_range, ", got ", range);
  }
  if (!unique || num_sampled <= range) return ok_status();
  return invalid_argument("cannot draw num_sampled = ", num_sampled, " different classes out of ",
                          range_attr, " = ", range);
}

Status sampler_shape(ShapeContext& c) {
  const bool has_range = c.attrs().find("range_max") != nullptr;
  MR_TRY(check_sampler(c.attrs(), has_range ? "range_max" : "num_sampled",
                       std::numeric_limits<int64_t>::max()));
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

uint32_t uniform_below(PhiloxWords& words, uint32_t n) {
  return below(n, [&] { return words.next(); });
}
uint64_t uniform_below(PhiloxWords& words, uint64_t n) {
  return below(n, [&] { return words.next64(); });
}

Result<CandidateSampler::Options> CandidateSampler::read_options(const KernelNode& node,
                                                                 std::string_view range_attr,
                                                                 int64_t max_range) {
  MR_TRY_ASSIGN(RandomSource source, RandomSource::make(node));
  MR_TRY_ASSIGN(const int64_t num_true, node.attr<int64_t>("num_true"));
  MR_TRY_ASSIGN(const int64_t num_sampled, node.attr<int64_t>("num_sampled"));
  MR_TRY_ASSIGN(const bool unique, node.attr<bool>("unique"));
  MR_TRY_ASSIGN(const int64_t range, node.attr<int64_t>(range_attr));
  MR_TRY(check_sampler(node.attrs, range_attr, max_range));
  return Options{std::move(source), num_true, num_sampled, unique, range};
}

Result<Indices> CandidateSampler::true_classes(KernelContext& ctx) const {
  MR_TRY(check_true_classes(ctx.input(0).shape(), options_.num_true));
  MR_TRY_ASSIGN(Indices classes, Indices::read(ctx, ctx.input(0)));
  for (int64_t k : classes.span()) {
    if (k < 0 || k >= options_.range) {
      return invalid_argument("true class ", k, " is out of range [0, ", options_.range, ")");
    }
  }
  return classes;
}

Status CandidateSampler::draw(KernelContext& ctx, const Indices& true_classes,
                              const ClassDistribution& distribution) const {
  const int64_t n = options_.num_sampled;
  MR_TRY_ASSIGN(Tensor * sampled, ctx.allocate_output(0, Shape{n}));
  MR_TRY_ASSIGN(Tensor * true_counts, ctx.allocate_output(1, ctx.input(0).shape()));
  MR_TRY_ASSIGN(Tensor * sampled_counts, ctx.allocate_output(2, Shape{n}));
  const std::span<int64_t> out = sampled->mutable_data<int64_t>();
  MR_TRY_ASSIGN(const int64_t tries, draw_classes(ctx, distribution, out));
  const auto count = [&](std::span<const int64_t> classes, std::span<float> counts) {
    for (size_t i = 0; i < classes.size(); ++i) {
      counts[i] = expected_count(distribution.probability(classes[i]), n, tries);
    }
  };
  count(true_classes.span(), true_counts->mutable_data<float>());
  count(out, sampled_counts->mutable_data<float>());
  return ok_status();
}

// Fills `out`; the number of tries it took.
Result<int64_t> CandidateSampler::draw_classes(const KernelContext& ctx,
                                               const ClassDistribution& distribution,
                                               std::span<int64_t> out) const {
  // A class that is nearly impossible may never come up. So many tries take a fraction of a second,
  // and some seconds under a sanitizer.
  constexpr int64_t kMaxRejected = int64_t{1} << 23;
  MR_TRY_ASSIGN(const Philox stream,
                options_.source.reserve(ctx, static_cast<uint64_t>(options_.num_sampled) * 512));
  PhiloxWords words(stream);
  std::unordered_set<int64_t> used;
  int64_t tries = 0;
  for (size_t picked = 0; picked < out.size(); ++tries) {
    if (tries % 65536 == 0 && ctx.cancel() != nullptr && ctx.cancel()->cancelled()) {
      return ctx.cancel()->status();
    }
    if (tries - static_cast<int64_t>(picked) >= kMaxRejected) {
      return resource_exhausted("drew only ", picked, " of ", out.size(), " different classes in ",
                                tries, " tries");
    }
    const int64_t k = distribution.sample(words);
    if (!options_.unique || used.insert(k).second) out[picked++] = k;
  }
  return tries;
}

OpSpec::Attr range_max_attr() {
  return {"range_max", "int >= 1", "Classes are in [0, range_max)."};
}

OpSpec candidate_sampler_spec(std::string_view name, std::string_view doc,
                              std::vector<OpSpec::Attr> own_attrs) {
  OpSpec spec = {.name = name,
                 .doc = doc,
                 .inputs = {{"true_classes", "int64"}},
                 .outputs = {{"sampled_candidates", "int64"},
                             {"true_expected_count", "float"},
                             {"sampled_expected_count", "float"}},
                 .attrs = {{"num_true", "int >= 1"},
                           {"num_sampled", "int >= 1"},
                           {"unique", "bool", "Draws no class twice."}},
                 .traits = {.stateful = true, .cannot_differentiate = true, .cost = 40},
                 .shape = sampler_shape};
  spec.attrs.insert(spec.attrs.end(), own_attrs.begin(), own_attrs.end());
  spec.attrs.push_back({"seed", "int = 0"});
  spec.attrs.push_back({"seed2", "int = 0"});
  return spec;
}

namespace {

// Class k has probability log((k + 2) / (k + 1)) / log(range + 1).
class LogUniform final : public ClassDistribution {
 public:
  explicit LogUniform(int64_t range)
      : range_(range), log_range_(std::log(static_cast<double>(range) + 1.0)) {}
  int64_t sample(PhiloxWords& words) const override {
    const uint32_t high = words.next();
    const double u = uniform_double(high, words.next());
    // Rounding may lead one past the end, which for the largest ranges is past int64.
    return (static_cast<int64_t>(std::min(std::exp(u * log_range_), 0x1p62)) - 1) % range_;
  }
  float probability(int64_t k) const override {
    const auto x = static_cast<double>(k);
    return static_cast<float>(std::log((x + 2.0) / (x + 1.0)) / log_range_);
  }

 private:
  int64_t range_;
  double log_range_;
};

class UniformClasses final : public ClassDistribution {
 public:
  explicit UniformClasses(int64_t range)
      : range_(static_cast<uint64_t>(range)),
        probability_(static_cast<float>(1.0 / static_cast<double>(range))) {}
  int64_t sample(PhiloxWords& words) const override {
    return static_cast<int64_t>(uniform_below(words, range_));
  }
  float probability(int64_t) const override { return probability_; }

 private:
  uint64_t range_;
  float probability_;
};

template <class Distribution>
class FormulaSampler final : public CandidateSampler {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(Options options, read_options(node));
    return std::unique_ptr<Kernel>(new FormulaSampler(std::move(options)));
  }
  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const Indices classes, true_classes(ctx));
    return draw(ctx, classes, distribution_);
  }

 private:
  explicit FormulaSampler(Options options)
      : CandidateSampler(std::move(options)), distribution_(this->options().range) {}
  Distribution distribution_;
};

// Every class once: for comparisons with losses that leave none out.
class AllClasses final : public CandidateSampler {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(Options options, read_options(node, "num_sampled"));
    return std::unique_ptr<Kernel>(new AllClasses(std::move(options)));
  }
  Status compute(KernelContext& ctx) const override {
    MR_TRY(true_classes(ctx).status());
    const Shape all = {options().range};
    MR_TRY_ASSIGN(Tensor * sampled, ctx.allocate_output(0, all));
    MR_TRY_ASSIGN(Tensor * true_counts, ctx.allocate_output(1, ctx.input(0).shape()));
    MR_TRY_ASSIGN(Tensor * sampled_counts, ctx.allocate_output(2, all));
    const std::span<int64_t> classes = sampled->mutable_data<int64_t>();
    std::iota(classes.begin(), classes.end(), 0);
    std::ranges::fill(true_counts->mutable_data<float>(), 1.0F);
    std::ranges::fill(sampled_counts->mutable_data<float>(), 1.0F);
    return ok_status();
  }

 private:
  using CandidateSampler::CandidateSampler;
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

}  // namespace

void register_candidate_samplers(Registry& registry) {
  registry.add(candidate_sampler_spec(
      "LogUniformCandidateSampler",
      "Classes drawn so that small numbers are likely: for vocabularies sorted by frequency.",
      {range_max_attr()}));
  registry.add(candidate_sampler_spec("UniformCandidateSampler",
                                      "Classes drawn with equal probability.", {range_max_attr()}));
  registry.add(
      candidate_sampler_spec("AllCandidateSampler", "Every class of [0, num_sampled), once.", {}));
  registry.kernel<FormulaSampler<LogUniform>>("LogUniformCandidateSampler", DeviceKind::kCpu);
  registry.kernel<FormulaSampler<UniformClasses>>("UniformCandidateSampler", DeviceKind::kCpu);
  registry.kernel<AllClasses>("AllCandidateSampler", DeviceKind::kCpu);
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
