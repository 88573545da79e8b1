#include <cstring>
#include <memory>
#include <vector>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/random/random_state.h"

namespace millrace {
namespace {

// Row i of the result is row order[i] of x.
void copy_rows(const KernelContext& ctx, const Tensor& x, const std::vector<int64_t>& order,
               Tensor& out) {
  const auto rows = static_cast<int64_t>(order.size());
  if (!is_plain(x.dtype())) {
    for (int64_t i = 0; i < rows; ++i) {
      Tensor to = out.row(i);
      copy_elements(x.row(order[static_cast<size_t>(i)]), to);
    }
    return;
  }
  const size_t bytes = x.bytes() / static_cast<size_t>(rows);
  const char* from = static_cast<const char*>(x.raw());
  char* to = static_cast<char*>(out.mutable_raw());
  ctx.parallel_for(rows, 2 + static_cast<double>(bytes) * 0.1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      std::memcpy(to + i * bytes, from + static_cast<size_t>(order[i]) * bytes, bytes);
    }
  });
}

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
    copy_rows(ctx, x, order, *out);
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
