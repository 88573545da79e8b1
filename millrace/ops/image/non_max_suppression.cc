#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "millrace/graph/size_rules.h"
#include "millrace/kernel/registry.h"
#include "millrace/tensor/half.h"

// NonMaxSuppression and V2, V3, V4: of boxes that overlap the one with the highest score.

namespace millrace {
namespace {

const TypeSet kBoxTypes = {DType::kHalf, DType::kFloat};

Status check_threshold(double threshold) {
  if (threshold >= 0 && threshold <= 1) return ok_status();
  return invalid_argument("iou_threshold must be in [0, 1], got ", threshold);
}

Status suppression_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape boxes, c.with_rank(0, 2));
  MR_TRY_ASSIGN(const PartialShape scores, c.with_rank(1, 1));
  MR_TRY(PartialShape({boxes.dim(0)}).merge(scores).status());
  if (boxes.dim_known(1) && boxes.dim(1) != 4) {
    return invalid_argument("boxes must have 4 columns, got ", boxes);
  }
  for (int i = 2; i < c.num_inputs(); ++i) MR_TRY(c.with_rank(i, 0).status());
  const std::optional<int64_t> most = c.input_scalar(2);
  if (most && *most < 0) {
    return invalid_argument("max_output_size must not be negative, got ", *most);
  }
  if (c.num_inputs() == 3) {
    MR_TRY_ASSIGN(const float threshold, c.attr<float>("iou_threshold"));
    MR_TRY(check_threshold(threshold));
  } else if (const std::optional<double> threshold = number_input(c, 3)) {
    MR_TRY(check_threshold(*threshold));
  }
  c.set_output(0, PartialShape({-1}));
  if (c.num_outputs() > 1) c.set_output(1, PartialShape::scalar());
  return ok_status();
}

// Corners in either order.
struct Box {
  float low_y, low_x, high_y, high_x;

  explicit Box(const float* b)
      : low_y(std::min(b[0], b[2])),
        low_x(std::min(b[1], b[3])),
        high_y(std::max(b[0], b[2])),
        high_x(std::max(b[1], b[3])) {}
  float area() const { return (high_y - low_y) * (high_x - low_x); }
  // The common part of the part that either covers.
  float overlap(const Box& other) const {
    const float ours = area(), theirs = other.area();
    if (ours <= 0 || theirs <= 0) return 0;
    const float height = std::min(high_y, other.high_y) - std::max(low_y, other.low_y);
    const float width = std::min(high_x, other.high_x) - std::max(low_x, other.low_x);
    const float common = std::max(height, 0.0F) * std::max(width, 0.0F);
    return common / (ours + theirs - common);
  }
};

// A tensor of half or float as floats.
std::vector<float> floats_of(const Tensor& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.num_elements()));
  if (tensor.dtype() == DType::kHalf) {
    std::transform(tensor.data<Half>().begin(), tensor.data<Half>().end(), out.begin(),
                   [](Half h) { return static_cast<float>(h); });
  } else {
    std::copy(tensor.data<float>().begin(), tensor.data<float>().end(), out.begin());
  }
  return out;
}

std::vector<int32_t> suppress(const std::vector<float>& corners, const std::vector<float>& scores,
                              int64_t most, float threshold, float score_threshold) {
  std::vector<int32_t> order;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] > score_threshold) order.push_back(static_cast<int32_t>(i));
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  std::vector<int32_t> selected;
  std::vector<Box> boxes;
  for (int32_t i : order) {
    if (static_cast<int64_t>(selected.size()) >= most) break;
    const Box box(corners.data() + 4 * static_cast<size_t>(i));
    const bool hidden = std::any_of(boxes.begin(), boxes.end(), [&](const Box& other) {
      return box.overlap(other) > threshold;
    });
    if (hidden) continue;
    selected.push_back(i);
    boxes.push_back(box);
  }
  return selected;
}

class SuppressionKernel final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    auto kernel = std::make_unique<SuppressionKernel>();
    if (node.num_inputs() == 3) {
      MR_TRY_ASSIGN(kernel->threshold_, node.attr<float>("iou_threshold"));
    }
    if (node.num_outputs() == 2) {
      MR_TRY_ASSIGN(kernel->pads_, node.attr<bool>("pad_to_max_output_size"));
    }
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status compute(KernelContext& ctx) const override {
    const Tensor &boxes = ctx.input(0), &scores = ctx.input(1);
    MR_TRY(expect_rank(ctx, 0, 2));
    MR_TRY(expect_rank(ctx, 1, 1));
    for (int i = 2; i < ctx.num_inputs(); ++i) MR_TRY(expect_rank(ctx, i, 0));
    if (boxes.dim(1) != 4 || boxes.dim(0) != scores.dim(0)) {
      return invalid_argument("boxes and scores must have shapes [n, 4] and [n], got ",
                              boxes.shape(), " and ", scores.shape());
    }
    if (scores.dim(0) > std::numeric_limits<int32_t>::max()) {
      return invalid_argument("there are more than 2^31 - 1 boxes");
    }
    MR_TRY_ASSIGN(const int64_t most, ctx.int_scalar_input(2));
    if (most < 0) return invalid_argument("max_output_size must not be negative, got ", most);
    const float threshold = ctx.num_inputs() > 3 ? floats_of(ctx.input(3))[0] : threshold_;
    MR_TRY(check_threshold(threshold));
    const float score_threshold =
        ctx.num_inputs() > 4 ? floats_of(ctx.input(4))[0] : std::numeric_limits<float>::lowest();
    const std::vector<int32_t> selected =
        suppress(floats_of(boxes), floats_of(scores), most, threshold, score_threshold);
    const int64_t count = static_cast<int64_t>(selected.size());
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape{pads_ ? most : count}));
    int32_t* const to = out->mutable_data<int32_t>().data();
    std::fill_n(to, out->num_elements(), 0);
    std::copy(selected.begin(), selected.end(), to);
    if (ctx.num_outputs() > 1) {
      MR_TRY_ASSIGN(Tensor * valid, ctx.allocate_output(1, Shape()));
      valid->mutable_data<int32_t>()[0] = static_cast<int32_t>(count);
    }
    return ok_status();
  }

 private:
  float threshold_ = 0.5F;
  bool pads_ = false;
};

}  // namespace

void register_non_max_suppression(Registry& registry) {
  for (int version = 1; version <= 4; ++version) {
    const bool first = version == 1;
    const std::string type = first ? "float" : "T";
    OpSpec spec{.name = first ? "NonMaxSuppression" : str_cat("NonMaxSuppressionV", version),
                .doc =
                    "The numbers of boxes in order of their scores, without those that overlap "
                    "one before by more than iou_threshold.",
                .inputs = {{"boxes", type}, {"scores", type}, {"max_output_size", "host(int32)"}},
                .outputs = {{"selected_indices", "int32"}},
                .traits = {.cannot_differentiate = true, .cost = 100},
                .shape = suppression_shape};
    if (first) {
      spec.attrs = {{"iou_threshold", "float = 0.5"}};
    } else {
      spec.types = {{"T", kBoxTypes, DType::kFloat}, {"T_threshold", kBoxTypes, DType::kFloat}};
      spec.inputs.push_back({"iou_threshold", "host(T_threshold)"});
    }
    if (version > 2) spec.inputs.push_back({"score_threshold", "host(T_threshold)"});
    if (version == 4) {
      spec.outputs.push_back({"valid_outputs", "host(int32)"});
      spec.attrs = {{"pad_to_max_output_size", "bool = false"}};
    }
    registry.add(spec);
    registry.kernel({.op = spec.name, .factory = &SuppressionKernel::make});
  }
}

}  // namespace millrace
