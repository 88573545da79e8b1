// Extrema and products of the rows that an id puts into one segment, by the elementwise loops.

#include <algorithm>
#include <limits>

#include "millrace/graph/gradient.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/strided_copy.h"
#include "millrace/ops/math/binary_ops.h"
#include "millrace/ops/reduce/segment_gradients.h"
#include "millrace/ops/reduce/segments.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// What a segment without rows becomes.
enum class Missing : uint8_t { kZero, kOne, kLowest, kHighest };

template <class T>
T missing_value(Missing missing) {
  constexpr double kHalfMax = 65504, kBFloat16Max = 0x1.FEp127;
  switch (missing) {
    case Missing::kZero:
      return T(0);
    case Missing::kOne:
      return T(1);
    case Missing::kLowest:
    case Missing::kHighest:
      break;
  }
  const bool low = missing == Missing::kLowest;
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    const double largest = std::is_same_v<T, Half> ? kHalfMax : kBFloat16Max;
    return T(static_cast<float>(low ? -largest : largest));
  } else {
    return low ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max();
  }
}

Result<Tensor> missing_scalar(DType dtype, Missing missing) {
  Tensor out;
  MR_TRY(dispatch<NumberTypes>(
      dtype, [&]<class T>() { out = Tensor::scalar(missing_value<T>(missing)); }));
  return out;
}

struct SegmentFold {
  const char* suffix;  // of SegmentX and UnsortedSegmentX
  const OpInfo* fold;
  TypeSet types;
  Missing sorted_missing, unsorted_missing;
  GradientRule sorted_grad, unsorted_grad;
  const char* doc;
};

constexpr SegmentFold kFolds[] = {
    {"Max", &Maximum::info, kRealNumbers, Missing::kZero, Missing::kLowest,
     segment_extremum_gradient, unsorted_segment_extremum_gradient, "The largest elements of"},
    {"Min", &Minimum::info, kRealNumbers, Missing::kZero, Missing::kHighest,
     segment_extremum_gradient, unsorted_segment_extremum_gradient, "The smallest elements of"},
    {"Prod", &Mul::info, kNumberTypes, Missing::kOne, Missing::kOne, segment_prod_gradient,
     unsorted_segment_prod_gradient, "Products of"},
};

class Fold : public Kernel {
 public:
  template <int kIndex, bool kSorted>
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    const SegmentFold& fold = kFolds[kIndex];
    MR_TRY_ASSIGN(const DType dtype, node.attr<DType>("T"));
    MR_TRY_ASSIGN(Tensor missing,
                  missing_scalar(dtype, kSorted ? fold.sorted_missing : fold.unsorted_missing));
    return std::make_unique<Fold>(BinaryFunction(*fold.fold, dtype), std::move(missing), kSorted);
  }
  Fold(BinaryFunction function, Tensor missing, bool sorted)
      : function_(function), missing_(std::move(missing)), sorted_(sorted) {}

  Status compute(KernelContext& ctx) const override {
    if (sorted_) {
      MR_TRY_ASSIGN(const SortedSegments s, SortedSegments::make(ctx));
      return fold(ctx, s.ids, s.segments);
    }
    MR_TRY_ASSIGN(const UnsortedSegments s, UnsortedSegments::make(ctx));
    return fold(ctx, s.ids, s.segments);
  }

 private:
  Status fold(KernelContext& ctx, const Indices& ids, int64_t segments) const {
    const Tensor& x = ctx.input(0);
    MR_TRY_ASSIGN(const Shape shape, segments_shape(segments, x.shape(), ids.shape().rank()));
    MR_TRY_ASSIGN(Tensor * y, ctx.allocate_output(0, shape));
    if (shape.num_elements() == 0) return ok_status();
    fill_tensor(ctx, missing_, *y);
    const std::span<const int64_t> id = ids.span();
    // Of each segment the first row is copied, not folded into what stands for no rows.
    std::vector<bool> first(id.size()), seen(static_cast<size_t>(segments));
    for (size_t i = 0; i < id.size(); ++i) {
      if (id[i] < 0) continue;
      first[i] = !seen[static_cast<size_t>(id[i])];
      seen[static_cast<size_t>(id[i])] = true;
    }
    const int64_t size = static_cast<int64_t>(dtype_size(x.dtype()));
    const int64_t row_bytes = shape.num_elements() / segments * size;
    const char* from = static_cast<const char*>(x.raw());
    char* to = static_cast<char*>(y->mutable_raw());
    constexpr int64_t kStrip = 256;  // bytes of a row that one thread takes
    const double cost = static_cast<double>(id.size()) * (5 + 0.1 * static_cast<double>(kStrip));
    ctx.parallel_for((row_bytes + kStrip - 1) / kStrip, cost, [&](int64_t begin, int64_t end) {
      const int64_t offset = begin * kStrip;
      const int64_t bytes = std::min(end * kStrip, row_bytes) - offset;
      for (size_t i = 0; i < id.size(); ++i) {
        if (id[i] < 0) continue;
        const char* row = from + static_cast<int64_t>(i) * row_bytes + offset;
        char* target = to + id[i] * row_bytes + offset;
        if (first[i]) {
          std::copy_n(row, bytes, target);
        } else {
          function_(target, row, target, bytes / size);
        }
      }
    });
    return ok_status();
  }

  const BinaryFunction function_;
  const Tensor missing_;
  const bool sorted_;
};

template <int kIndex>
void register_fold(Registry& registry) {
  const SegmentFold& fold = kFolds[kIndex];
  const TypeSet computed = fold.types & kNumbers;
  const std::string sorted = str_cat("Segment", fold.suffix);
  registry.add(
      {.name = sorted,
       .doc = str_cat(fold.doc, " neighbouring rows that have one id; ids do not decrease."),
       .inputs = {{"data", "T"}, {"segment_ids", "Tindices"}},
       .outputs = {{"output", "T"}},
       .types = {{"T", fold.types}, {"Tindices", kIndexTypes}},
       .traits = {.cost = 0.5F},
       .shape = sorted_segments_shape,
       .gradient = fold.sorted_grad});
  registry.kernel(
      {.op = sorted, .constraints = {{"T", computed}}, .factory = Fold::make<kIndex, true>});
  const std::string unsorted = str_cat("Unsorted", sorted);
  registry.add(
      {.name = unsorted,
       .doc = str_cat(fold.doc, " the rows that have one id. Rows with negative ids are left out."),
       .inputs = {{"data", "T"},
                  {"segment_ids", "Tindices", "Of a shape that begins data's."},
                  {"num_segments", "host(Tnumsegments)"}},
       .outputs = {{"output", "T"}},
       .types = {{"T", fold.types},
                 {"Tindices", kIndexTypes},
                 {"Tnumsegments", kIndexTypes, DType::kInt32}},
       .traits = {.cost = 0.5F},
       .shape = unsorted_segments_shape,
       .gradient = fold.unsorted_grad});
  registry.kernel(
      {.op = unsorted, .constraints = {{"T", computed}}, .factory = Fold::make<kIndex, false>});
}

}  // namespace

void register_segment_folds(Registry& registry) {
  register_fold<0>(registry);
  register_fold<1>(registry);
  register_fold<2>(registry);
}

}  // namespace millrace
