#include <memory>
#include <vector>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/random/random_state.h"
#include "millrace/ops/rows.h"

namespace millrace {
namespace {

class RandomShuffle final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(RandomSource source, RandomSource::make(node));
    return std::unique_ptr<Kernel>(new RandomShuffle(std::move(source)));
  }
  explicit RandomShuffle(RandomSource source) : source_(std::move(source)) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor& x = ctx.input(0);
    if (x.num_elements() <= 1 || x.dim(0) <= 1) {
      ctx.set_output_value(0, ctx.take_input(0));
      return ok_status();
    }
    const auto n = static_cast<uint64_t>(x.dim(0));
    MR_TRY_ASSIGN(const Philox stream, source_.reserve(ctx, (n - 1 + 3) / 4));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, x.shape()));
    std::vector<int64_t> order(n);
    for (uint64_t i = 0; i < n; ++i) order[i] = static_cast<int64_t>(i);
    PhiloxWords words(stream);
    for (uint64_t i = 0; i + 1 < n; ++i) std::swap(order[i], order[i + words.next() % (n - i)]);
    const int64_t* rows = order.data();
    gather_rows(
        ctx, x, x.dim(0), x.num_elements() / x.dim(0), [rows](int64_t i) { return rows[i]; }, *out);
    return ok_status();
  }

 private:
  RandomSource source_;
};

}  // namespace

void register_random_shuffle(Registry& registry) {
  registry.add({.name = "RandomShuffle",
                .doc = "The rows of a tensor in random order.",
                .inputs = {{"value", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}},
                .attrs = {{"seed", "int = 0"}, {"seed2", "int = 0"}},
                .traits = {.stateful = true, .cannot_differentiate = true, .may_alias = 1},
                .shape = shape_rules::unchanged});
  registry.kernel<RandomShuffle>("RandomShuffle", DeviceKind::kCpu);
}

}  // namespace millrace
