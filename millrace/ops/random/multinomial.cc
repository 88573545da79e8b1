#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/random/distributions.h"
#include "millrace/ops/random/random_state.h"
#include "millrace/ops/random/stateless.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

Status multinomial_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape logits, c.with_rank(0, 2));
  MR_TRY(c.with_rank(1, 0).status());
  const std::optional<int64_t> samples = c.input_scalar(1);
  if (samples && *samples < 0) {
    return invalid_argument("num_samples must not be negative, got ", *samples);
  }
  const int64_t batch = logits.rank_known() ? logits.dim(0) : PartialShape::kUnknownDim;
  const int64_t dims[] = {batch, samples.value_or(PartialShape::kUnknownDim)};
  MR_TRY_ASSIGN(PartialShape shape, PartialShape::make(dims));
  c.set_output(0, std::move(shape));
  return ok_status();
}

// Running sums of exp(logit - largest); logits that are not finite count nothing.
template <class T>
void cumulate(const T* logits, std::vector<double>& sums) {
  double largest = -std::numeric_limits<double>::infinity();
  for (size_t k = 0; k < sums.size(); ++k) {
    const auto logit = static_cast<double>(logits[k]);
    if (std::isfinite(logit)) largest = std::max(largest, logit);
  }
  double sum = 0;
  for (size_t k = 0; k < sums.size(); ++k) {
    const auto logit = static_cast<double>(logits[k]);
    if (std::isfinite(logit)) sum += std::exp(logit - largest);
    sums[k] = sum;
  }
}

// Each sample takes two words of the stream, row after row, so a row knows where its own begin.
template <class T, class Out>
void draw(const KernelContext& ctx, const Philox& stream, const T* logits, int64_t batch,
          int64_t classes, int64_t samples, Out* out) {
  const double cost = static_cast<double>(classes) * 8 + static_cast<double>(samples) * 30;
  ctx.parallel_for(batch, cost, [&](int64_t begin, int64_t end) {
    std::vector<double> sums(static_cast<size_t>(classes));
    const auto first = static_cast<uint64_t>(begin) * static_cast<uint64_t>(samples);
    Philox part = stream;
    part.skip(first / 2);
    PhiloxWords words(part);
    if (first % 2 != 0) words.next64();
    for (int64_t row = begin; row < end; ++row) {
      cumulate(logits + row * classes, sums);
      for (int64_t k = 0; k < samples; ++k) {
        const uint32_t high = words.next();
        const double wanted = uniform_double(high, words.next()) * sums.back();
        const auto found = std::upper_bound(sums.begin(), sums.end(), wanted) - sums.begin();
        // Only a row without a finite logit has nothing to be found.
        out[row * samples + k] = static_cast<Out>(std::min<int64_t>(found, classes - 1));
      }
    }
  });
}

class Multinomial final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(RandomSource source, RandomSource::make(node));
    return std::unique_ptr<Kernel>(new Multinomial(std::move(source)));
  }
  explicit Multinomial(RandomSource source) : source_(std::move(source)) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY(expect_rank(ctx, 0, 2));
    MR_TRY(expect_rank(ctx, 1, 0));
    const Tensor& logits = ctx.input(0);
    MR_TRY_ASSIGN(const int64_t samples, ctx.int_scalar_input(1));
    if (samples < 0) {
      return invalid_argument("num_samples must not be negative, got ", samples);
    }
    const int64_t batch = logits.dim(0), classes = logits.dim(1);
    const bool wide = ctx.output_type(0) == DType::kInt64;
    if (classes == 0 || (!wide && classes - 1 > std::numeric_limits<int32_t>::max())) {
      return invalid_argument("num_classes should be positive and at most as many as ",
                              ctx.output_type(0), " can number, got shape ", logits.shape());
    }
    MR_TRY_ASSIGN(const Shape shape, Shape::make({{batch, samples}}));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (shape.num_elements() == 0) return source_.check(ctx);
    const auto padded = static_cast<uint64_t>(samples + 3) / 4 * 4;
    MR_TRY_ASSIGN(const Philox stream,
                  source_.reserve(ctx, static_cast<uint64_t>(batch) * padded * 256));
    return dispatch<RealTypes>(logits.dtype(), [&]<class T>() {
      const T* data = logits.data<T>().data();
      if (wide) {
        draw(ctx, stream, data, batch, classes, samples, out->mutable_data<int64_t>().data());
      } else {
        draw(ctx, stream, data, batch, classes, samples, out->mutable_data<int32_t>().data());
      }
    });
  }

 private:
  RandomSource source_;
};

}  // namespace

void register_multinomial(Registry& registry) {
  registry.add({.name = "Multinomial",
                .doc = "Classes drawn by row: class k with a probability in proportion to "
                       "exp(logits[row, k]).",
                .inputs = {{"logits", "T"}, {"num_samples", "host(int32)"}},
                .outputs = {{"output", "output_dtype"}},
                .types = {{"T", kRealNumbers}, {"output_dtype", kIndexTypes, DType::kInt64}},
                .attrs = {{"seed", "int = 0"}, {"seed2", "int = 0"}},
                .traits = {.stateful = true, .cannot_differentiate = true, .cost = 30},
                .shape = multinomial_shape});
  add_stateless(
      registry,
      {.spec = {.doc = "As Multinomial, drawn as the seed says.",
                .outputs = {{"output", "output_dtype"}},
                .types = {{"T", kRealNumbers}, {"output_dtype", kIndexTypes, DType::kInt64}},
                .traits = {.cannot_differentiate = true, .cost = 30},
                .shape = with_stream<multinomial_shape>},
       .before = {{"logits", "T"}, {"num_samples", "host(int32)"}},
       .with_seed = "StatelessMultinomial"});
  for (const char* op : {"Multinomial", "StatelessMultinomial"}) {
    registry.kernel({.op = op, .factory = Multinomial::make});
  }
}

}  // namespace millrace
