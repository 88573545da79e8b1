// LearnedUnigramCandidateSampler and ThreadUnsafeUnigramCandidateSampler: a class is as likely as
// it was frequent among the true classes so far, beginning with once each. The counts live in the
// session, so they outlast runs, and go into checkpoints. Both are safe with threads here; the
// second name is TensorFlow's.

#include <algorithm>
#include <bit>
#include <memory>

#include "millrace/graph/shape_context.h"
#include "millrace/io/coding.h"
#include "millrace/kernel/op_state.h"
#include "millrace/ops/random/candidate_samplers.h"
#include "millrace/ops/state/variable.h"

namespace millrace {
namespace {

constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();

// Counts in a binary indexed tree (Fenwick 1994): node i, from 1 on, has the sum of the
// i & -i counts that end with count i - 1.
class UnigramCounts final : public ClassDistribution {
 public:
  static Result<UnigramCounts> make(int64_t range) {
    MR_TRY_ASSIGN(Tensor tree, Tensor::allocate(DType::kInt32, Shape{range + 1}));
    const std::span<int32_t> nodes = tree.mutable_data<int32_t>();
    for (int64_t i = 0; i <= range; ++i) {
      nodes[static_cast<size_t>(i)] = static_cast<int32_t>(i & -i);
    }
    return UnigramCounts(std::move(tree), range);
  }

  // Of counts as encode() writes them; DATA_LOSS for others.
  static Result<UnigramCounts> decode(std::string_view bytes) {
    const auto range = static_cast<int64_t>(bytes.size() / sizeof(uint32_t));
    if (range < 1 || range > kMaxCount - 1 || bytes.size() % sizeof(uint32_t) != 0) {
      return data_loss("expected counts of four bytes each, got ", bytes.size(), " bytes");
    }
    MR_TRY_ASSIGN(UnigramCounts counts, make(range));
    const std::span<int32_t> nodes = counts.tree_.mutable_data<int32_t>();
    counts.total_ = 0;
    std::fill(nodes.begin(), nodes.end(), 0);
    for (int64_t i = 1; i <= range; ++i) {
      const uint32_t count = load_fixed32(bytes.data() + (i - 1) * int64_t{sizeof(uint32_t)});
      if (count < 1 || count > kMaxCount - counts.total_) {
        return data_loss("class ", i - 1, " has a count of ", count);
      }
      counts.total_ += count;
      nodes[static_cast<size_t>(i)] += static_cast<int32_t>(count);
      const int64_t above = i + (i & -i);
      if (above <= range) nodes[static_cast<size_t>(above)] += nodes[static_cast<size_t>(i)];
    }
    return counts;
  }
  std::string encode() const {
    std::string bytes;
    for (int64_t k = 0; k < range_; ++k) put_fixed32(bytes, static_cast<uint32_t>(count(k)));
    return bytes;
  }

  int64_t range() const { return range_; }

  int64_t sample(PhiloxWords& words) const override {
    int64_t position = uniform_below(words, static_cast<uint32_t>(total_));
    int64_t at = 0;
    for (auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(range_))); step > 0;
         step /= 2) {
      if (at + step > range_ || node(at + step) > position) continue;
      at += step;
      position -= node(at);
    }
    return at;
  }

  float probability(int64_t k) const override {
    return static_cast<float>(count(k)) / static_cast<float>(total_);
  }

  // Counts class k once more, unless the total has reached its limit.
  void add(int64_t k) {
    if (total_ == kMaxCount) return;
    ++total_;
    int32_t* nodes = tree_.mutable_data<int32_t>().data();
    for (int64_t i = k + 1; i <= range_; i += i & -i) ++nodes[i];
  }

 private:
  UnigramCounts(Tensor tree, int64_t range)
      : tree_(std::move(tree)), range_(range), total_(range) {}
  int64_t count(int64_t k) const {
    int64_t count = node(k + 1);
    const int64_t begin = (k + 1) & k;
    for (int64_t i = k; i > begin; i &= i - 1) count -= node(i);
    return count;
  }
  int64_t node(int64_t i) const { return tree_.data<int32_t>()[static_cast<size_t>(i)]; }

  Tensor tree_;
  int64_t range_;
  int64_t total_;
};

class UnigramState final : public OpState {
 public:
  static constexpr std::string_view kTypeName = "UnigramState";

  explicit UnigramState(UnigramCounts counts) : counts_(std::move(counts)) {}
  std::string describe() const override { return "UnigramState"; }
  std::string encode() const override {
    MutexLock lock(mu_);
    return counts_.encode();
  }
  static Result<Ref<OpState>> decode(std::string_view bytes) {
    MR_TRY_ASSIGN(UnigramCounts counts, UnigramCounts::decode(bytes));
    return Ref<OpState>(make_ref<UnigramState>(std::move(counts)));
  }
  Status install(ResourceManager& resources, const std::string& name) override {
    return install_state(resources, name, Ref<UnigramState>(this));
  }

  // Calls `f` with the counts, which are the caller's alone meanwhile.
  template <class F>
  Status with_counts(F f) {
    MutexLock lock(mu_);
    return f(counts_);
  }

 private:
  mutable Mutex mu_;
  UnigramCounts counts_ MR_GUARDED_BY(mu_);
};

constexpr int64_t kMaxRange = kMaxCount - 1;

Status learned_shape(ShapeContext& c) {
  MR_TRY(check_sampler(c.attrs(), "range_max", kMaxRange));
  return sampler_shape(c);
}

class LearnedUnigramSampler final : public CandidateSampler {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(Options options, read_options(node, "range_max", kMaxRange));
    return std::unique_ptr<Kernel>(new LearnedUnigramSampler(std::move(options)));
  }

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const Indices classes, true_classes(ctx));
    const auto make_state = [&]() -> Result<Ref<UnigramState>> {
      MR_TRY_ASSIGN(UnigramCounts counts, UnigramCounts::make(options().range));
      return make_ref<UnigramState>(std::move(counts));
    };
    MR_TRY_ASSIGN(const Ref<UnigramState> state,
                  ctx.resources().lookup_or_create<UnigramState>(
                      container_or_default({}), options().source.name(), make_state));
    return state->with_counts([&](UnigramCounts& counts) -> Status {
      // What a checkpoint has of other classes is of no use.
      if (counts.range() != options().range) {
        MR_TRY_ASSIGN(counts, UnigramCounts::make(options().range));
      }
      MR_TRY(draw(ctx, classes, counts));
      for (int64_t k : classes.span()) counts.add(k);
      return ok_status();
    });
  }

 private:
  using CandidateSampler::CandidateSampler;
};

}  // namespace

void register_candidate_samplers_learned(Registry& registry) {
  register_op_state(UnigramState::kTypeName, &UnigramState::decode);
  for (const char* name :
       {"LearnedUnigramCandidateSampler", "ThreadUnsafeUnigramCandidateSampler"}) {
    OpSpec spec = candidate_sampler_spec(
        name, "Classes drawn as often as they were among the true classes of earlier runs.",
        {range_max_attr()});
    spec.shape = learned_shape;
    registry.add(std::move(spec));
    registry.kernel<LearnedUnigramSampler>(name, DeviceKind::kCpu);
  }
}

}  // namespace millrace
