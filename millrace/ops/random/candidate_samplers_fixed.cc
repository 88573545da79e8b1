// FixedUnigramCandidateSampler: the weight of each class is given, in a list or in a file.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>

#include "millrace/base/file_access.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/graph_rights.h"
#include "millrace/ops/random/candidate_samplers.h"
#include "millrace/ops/random/distributions.h"

namespace millrace {
namespace {

constexpr uint64_t kMaxVocabularyBytes = uint64_t{1} << 30;

// Classes by their weights. An alias table (Walker 1977): each class owns a column of height one,
// filled up to `keep` by itself and above by one other class, so a draw looks at one column.
class WeightedClasses final : public ClassDistribution {
 public:
  // Weights are finite, none is negative, and so is their sum, which is positive.
  static Result<WeightedClasses> make(Tensor weights);

  int64_t sample(PhiloxWords& words) const override {
    const float height = uniform_float(words.next());
    const size_t column = uniform_below(words, static_cast<uint32_t>(weights_.num_elements()));
    if (height < keep_.data<float>()[column]) return static_cast<int64_t>(column);
    return other_.data<int32_t>()[column];
  }
  float probability(int64_t k) const override {
    return weights_.data<float>()[static_cast<size_t>(k)] / total_;
  }

 private:
  WeightedClasses() = default;
  Status fill_columns();

  Tensor weights_, keep_, other_;
  float total_ = 0;
};

Result<WeightedClasses> WeightedClasses::make(Tensor weights) {
  WeightedClasses made;
  for (float w : weights.data<float>()) made.total_ += w;
  MR_TRY_ASSIGN(made.keep_, Tensor::allocate(DType::kFloat, weights.shape()));
  MR_TRY_ASSIGN(made.other_, Tensor::allocate(DType::kInt32, weights.shape()));
  made.weights_ = std::move(weights);
  MR_TRY(made.fill_columns());
  return made;
}

// Columns that are not full yet are filled up from classes that have more than their own column
// holds. Both wait on stacks, which share an array: one grows from each end.
Status WeightedClasses::fill_columns() {
  const std::span<const float> weights = weights_.data<float>();
  const std::span<float> keep = keep_.mutable_data<float>();
  const std::span<int32_t> other = other_.mutable_data<int32_t>();
  const size_t n = weights.size();
  MR_TRY_ASSIGN(Tensor rest_tensor, Tensor::allocate(DType::kDouble, weights_.shape()));
  MR_TRY_ASSIGN(Tensor stack_tensor, Tensor::allocate(DType::kInt32, weights_.shape()));
  const std::span<double> rest = rest_tensor.mutable_data<double>();
  const std::span<int32_t> stack = stack_tensor.mutable_data<int32_t>();
  size_t low = 0, high = n;  // stack[0, low) and stack[high, n)
  const auto push = [&](size_t i) {
    stack[rest[i] < 1.0 ? low++ : --high] = static_cast<int32_t>(i);
  };

  double sum = 0;
  size_t heaviest = 0;
  for (size_t i = 0; i < n; ++i) {
    sum += weights[i];
    if (weights[i] > weights[heaviest]) heaviest = i;
  }
  for (size_t i = 0; i < n; ++i) {
    rest[i] = weights[i] * static_cast<float>(n) / sum;
    push(i);
  }
  while (low > 0 && high < n) {
    const auto l = static_cast<size_t>(stack[--low]), h = static_cast<size_t>(stack[high++]);
    keep[l] = static_cast<float>(rest[l]);
    other[l] = static_cast<int32_t>(h);
    rest[h] -= 1.0 - rest[l];
    push(h);
  }
  // What is left is full up to rounding; an impossible class must not become possible by it.
  const auto finish = [&](size_t i) {
    keep[i] = weights[i] > 0 ? 1.0F : 0.0F;
    other[i] = static_cast<int32_t>(weights[i] > 0 ? i : heaviest);
  };
  while (low > 0) finish(static_cast<size_t>(stack[--low]));
  while (high < n) finish(static_cast<size_t>(stack[high++]));
  return ok_status();
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// The last of the comma-separated fields of each line that is not empty.
Result<std::vector<float>> read_vocabulary(const std::string& path, const FileAccess& files) {
  MR_TRY_ASSIGN(const FilePlace place, files.resolve(path, FileAccess::Use::kRead));
  MR_TRY_ASSIGN(const std::string text, read_file(*place.fs, place.path, kMaxVocabularyBytes));
  std::vector<float> weights;
  std::string_view left = text;
  for (int64_t number = 1; !left.empty(); ++number) {
    const std::string_view line = left.substr(0, left.find('\n'));
    left.remove_prefix(std::min(left.size(), line.size() + 1));
    if (trimmed(line).empty()) continue;
    const size_t comma = line.rfind(',');
    const std::string_view field =
        trimmed(comma == std::string_view::npos ? line : line.substr(comma + 1));
    float weight = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), weight);
    if (error != std::errc() || end != field.data() + field.size()) {
      return invalid_argument("vocab_file '", path, "' line ", number,
                              ": expected a number in the last field, got '", field.substr(0, 100),
                              "'");
    }
    weights.push_back(weight);
  }
  return weights;
}

// Which of all classes a sampler has: number `shard`, and every num_shards-th after it.
struct Shard {
  int64_t num_shards, shard;
  // How many of the first n classes.
  int64_t count(int64_t n) const { return n <= shard ? 0 : (n - 1 - shard) / num_shards + 1; }
};

// What the attributes say of the classes: num_reserved_ids that are never drawn, then those with
// the given weights, to the power of `distortion`. Every class is in one shard.
struct Classes {
  Shard shard;
  int64_t reserved, range;
  float distortion;
  std::string vocab_file;
  std::vector<float> given;

  static Result<Classes> read(const AttrMap& attrs);
  // Calls body(class, weight) for each class that may be drawn.
  template <class Body>
  Status for_each(Body body) const;
  // Whether the weights make sense, and are enough for the samples.
  Status check(const AttrMap& attrs) const;
};

constexpr int64_t kMaxRange = std::numeric_limits<int32_t>::max();

Result<Classes> Classes::read(const AttrMap& attrs) {
  Classes c;
  MR_TRY_ASSIGN(c.range, read_attr<int64_t>(attrs, "range_max"));
  MR_TRY_ASSIGN(c.distortion, read_attr<float>(attrs, "distortion"));
  MR_TRY_ASSIGN(c.reserved, read_attr<int64_t>(attrs, "num_reserved_ids"));
  MR_TRY_ASSIGN(c.shard.num_shards, read_attr<int64_t>(attrs, "num_shards"));
  MR_TRY_ASSIGN(c.shard.shard, read_attr<int64_t>(attrs, "shard"));
  MR_TRY_ASSIGN(c.vocab_file, read_attr<std::string>(attrs, "vocab_file"));
  MR_TRY_ASSIGN(c.given, read_attr<std::vector<float>>(attrs, "unigrams"));
  MR_TRY(check_sampler(attrs, "range_max", kMaxRange));
  if (c.shard.shard >= c.shard.num_shards) {
    return invalid_argument("shard must be in [0, num_shards = ", c.shard.num_shards, "), got ",
                            c.shard.shard);
  }
  if (c.reserved < 0 || c.reserved > std::numeric_limits<int32_t>::max()) {
    return invalid_argument("num_reserved_ids must be in [0, 2^31), got ", c.reserved);
  }
  if (c.vocab_file.empty() == c.given.empty()) {
    return invalid_argument("expected either vocab_file or unigrams, got ",
                            c.given.empty() ? "neither" : "both");
  }
  return c;
}

template <class Body>
Status Classes::for_each(Body body) const {
  for (int64_t i = shard.count(reserved); i < range; ++i) {
    const int64_t id = shard.shard + i * shard.num_shards - reserved;
    const float weight = std::pow(given[static_cast<size_t>(id)], distortion);
    if (!std::isfinite(weight) || weight < 0) {
      return invalid_argument("weight ", given[static_cast<size_t>(id)], " of class ",
                              id + reserved, " to the power of ", distortion, " is ", weight);
    }
    body(i, weight);
  }
  return ok_status();
}

Status Classes::check(const AttrMap& attrs) const {
  const int64_t total = shard.count(reserved + static_cast<int64_t>(given.size()));
  if (total != range) {
    return invalid_argument("range_max must be the number of classes: expected ", total, ", got ",
                            range);
  }
  int64_t possible = 0;
  float sum = 0;
  MR_TRY(for_each([&](int64_t, float weight) {
    if (weight > 0) ++possible;
    sum += weight;
  }));
  if (!std::isfinite(sum) || sum <= 0) {
    return invalid_argument("the weights must have a finite, positive sum, got ", sum);
  }
  MR_TRY_ASSIGN(const int64_t num_sampled, read_attr<int64_t>(attrs, "num_sampled"));
  MR_TRY_ASSIGN(const bool unique, read_attr<bool>(attrs, "unique"));
  if (!unique || num_sampled <= possible) return ok_status();
  return invalid_argument("cannot draw num_sampled = ", num_sampled, " different classes: only ",
                          possible, " have a positive weight");
}

bool reads_file(const AttrMap& attrs) {
  const Result<std::string> name = read_attr<std::string>(attrs, "vocab_file");
  return name.ok() && !name->empty();
}

Status fixed_unigram_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const Classes classes, Classes::read(c.attrs()));
  // A file is the kernel's to read.
  if (classes.vocab_file.empty()) MR_TRY(classes.check(c.attrs()));
  return sampler_shape(c);
}

class FixedUnigramSampler final : public CandidateSampler {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(Options options, read_options(node, "range_max", kMaxRange));
    MR_TRY_ASSIGN(Classes classes, Classes::read(node.attrs));
    if (!classes.vocab_file.empty()) {
      MR_TRY_ASSIGN(classes.given, read_vocabulary(classes.vocab_file, node.device->files()));
    }
    MR_TRY(classes.check(node.attrs));
    MR_TRY_ASSIGN(Tensor weights, Tensor::zeros(DType::kFloat, Shape{classes.range}));
    const std::span<float> out = weights.mutable_data<float>();
    MR_TRY(
        classes.for_each([&](int64_t i, float weight) { out[static_cast<size_t>(i)] = weight; }));
    MR_TRY_ASSIGN(WeightedClasses distribution, WeightedClasses::make(std::move(weights)));
    return std::unique_ptr<Kernel>(
        new FixedUnigramSampler(std::move(options), std::move(distribution)));
  }

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const Indices classes, true_classes(ctx));
    return draw(ctx, classes, distribution_);
  }

 private:
  FixedUnigramSampler(Options options, WeightedClasses distribution)
      : CandidateSampler(std::move(options)), distribution_(std::move(distribution)) {}
  WeightedClasses distribution_;
};

}  // namespace

void register_candidate_samplers_fixed(Registry& registry) {
  mark_reach({"FixedUnigramCandidateSampler"}, Reach::kFiles, reads_file);
  OpSpec spec = candidate_sampler_spec(
      "FixedUnigramCandidateSampler", "Classes drawn in proportion to given weights.",
      {range_max_attr(),
       {"vocab_file", "string = ''",
        "A weight per line, after the last comma; no more than a gigabyte."},
       {"distortion", "float = 1", "Weights are raised to this power."},
       {"num_reserved_ids", "int = 0", "Classes before the first weight; they are never drawn."},
       {"num_shards", "int = 1 >= 1", "Of how many samplers this is one."},
       {"shard", "int = 0 >= 0", "Draws class shard, and every num_shards-th after it."},
       {"unigrams", "list(float) = []", "The weights, where there is no file."}});
  spec.shape = fixed_unigram_shape;
  registry.add(std::move(spec));
  registry.kernel<FixedUnigramSampler>("FixedUnigramCandidateSampler", DeviceKind::kCpu);
}

}  // namespace millrace
