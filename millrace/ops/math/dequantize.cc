// Numbers from quantised ones: 2^8, 2^16 or 2^32 steps of a range that is given beside them.

#include <algorithm>
#include <cmath>
#include <limits>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/tensor/dispatch.h"
#include "millrace/tensor/half.h"
#include "millrace/tensor/quantized.h"

namespace millrace {
namespace {

Status dequantize_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const int64_t axis, c.attr<int64_t>("axis"));
  PartialShape range = PartialShape::scalar();
  if (axis != -1) {
    const PartialShape& input = c.input(0);
    if (axis < -1 || (input.rank_known() && axis >= input.rank())) {
      return invalid_argument("axis must be -1 or a dimension of the input, got ", axis, " for ",
                              input);
    }
    range = input.rank_known() ? PartialShape{input.dim(static_cast<int>(axis))}
                               : PartialShape::of_rank(1);
  }
  for (int i = 1; i < 3; ++i) MR_TRY(c.input(i).merge(range).status());
  c.set_output(0, c.input(0));
  return ok_status();
}

enum class Mode : uint8_t { kMinCombined, kMinFirst, kScaled };

// value = offset + (quantised + shift) * scale.
struct Line {
  double offset = 0, shift = 0, scale = 0;
};

template <class I>
Line line_of(Mode mode, bool narrow, double min, double max) {
  const double least = static_cast<double>(std::numeric_limits<I>::min());
  const double most = static_cast<double>(std::numeric_limits<I>::max());
  switch (mode) {
    case Mode::kMinCombined: {
      const double half = std::is_signed_v<I> ? (most - least + 1) / 2 : 0;
      return {min, half, (max - min) / (most - least)};
    }
    case Mode::kMinFirst: {
      const double scale = (max - min) / (most - least);
      const auto rounded = static_cast<float>(scale);
      return {min == max ? min : std::round(min / rounded) * rounded, -least, scale};
    }
    default: {
      const double from = std::is_signed_v<I> ? min / (least + (narrow ? 1 : 0)) : 0;
      return {0, 0, std::max(from, max / most)};
    }
  }
}

template <class Q>
class Dequantize : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const std::string mode, node.attr<std::string>("mode"));
    MR_TRY_ASSIGN(const bool narrow, node.attr<bool>("narrow_range"));
    MR_TRY_ASSIGN(const int64_t axis, node.attr<int64_t>("axis"));
    const Mode known = mode == "MIN_COMBINED" ? Mode::kMinCombined
                       : mode == "MIN_FIRST"  ? Mode::kMinFirst
                                              : Mode::kScaled;
    return std::make_unique<Dequantize>(known, narrow, axis);
  }
  Dequantize(Mode mode, bool narrow, int64_t axis) : mode_(mode), narrow_(narrow), axis_(axis) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor& input = ctx.input(0);
    if (axis_ < -1 || axis_ >= input.rank()) {
      return invalid_argument("axis must be -1 or a dimension of the input, got ", axis_, " for ",
                              input.shape());
    }
    const int axis = static_cast<int>(axis_);
    const Shape range = axis < 0 ? Shape{} : Shape{input.dim(axis)};
    if (!(ctx.input(1).shape() == range) || !(ctx.input(2).shape() == range)) {
      return invalid_argument("min_range and max_range must have shape ", range, ", got ",
                              ctx.input(1).shape(), " and ", ctx.input(2).shape());
    }
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, input.shape()));
    if (out->num_elements() == 0) return ok_status();
    int64_t run = axis < 0 ? input.num_elements() : 1;
    for (int k = axis + 1; axis >= 0 && k < input.rank(); ++k) run *= input.dim(k);
    return dispatch<TypeList<float, BFloat16>>(
        out->dtype(), [&]<class T>() { write<T>(ctx, run, range.num_elements(), *out); });
  }

 private:
  // Runs of `run` elements have one range, the first again after all `ranges`.
  template <class T>
  void write(KernelContext& ctx, int64_t run, int64_t ranges, Tensor& out) const {
    using I = decltype(Q::value);
    const Q* from = ctx.input(0).data<Q>().data();
    const float *min = ctx.input(1).data<float>().data(), *max = ctx.input(2).data<float>().data();
    T* const to = out.mutable_data<T>().data();
    ctx.parallel_for(
        out.num_elements() / run, 2.0 * static_cast<double>(run), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const Line line = line_of<I>(mode_, narrow_, min[i % ranges], max[i % ranges]);
            for (int64_t k = i * run; k < (i + 1) * run; ++k) {
              const double quantised = from[k].value;
              to[k] = static_cast<T>(
                  static_cast<float>(line.offset + (quantised + line.shift) * line.scale));
            }
          }
        });
  }

  const Mode mode_;
  const bool narrow_;
  const int64_t axis_;
};

template <class... Qs>
void register_kernels(Registry& registry, TypeList<Qs...>) {
  (registry.kernel({.op = "Dequantize",
                    .constraints = {{"T", {dtype_of<Qs>}}},
                    .factory = &Dequantize<Qs>::make}),
   ...);
}

}  // namespace

void register_dequantize(Registry& registry) {
  registry.add(
      {.name = "Dequantize",
       .doc = "The numbers that quantised ones stand for.",
       .inputs = {{"input", "T"}, {"min_range", "float"}, {"max_range", "float"}},
       .outputs = {{"output", "dtype"}},
       .types = {{"T", kQuantized}, {"dtype", {DType::kBFloat16, DType::kFloat}, DType::kFloat}},
       .attrs = {{"mode", "string = 'MIN_COMBINED' in {'MIN_COMBINED','MIN_FIRST','SCALED'}"},
                 {"narrow_range", "bool = false"},
                 {"axis", "int = -1", "The dimension that has a range for each place."}},
       .traits = {.cost = 2},
       .shape = dequantize_shape,
       .no_gradient = "its input is quantised"});
  register_kernels(registry, QuantizedTypes());
}

}  // namespace millrace
