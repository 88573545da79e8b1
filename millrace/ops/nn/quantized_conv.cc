// A convolution of quantised images with quantised filters.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/nn/window_geometry.h"
#include "millrace/tensor/dispatch.h"
#include "millrace/tensor/quantized.h"

namespace millrace {
namespace {

using Types = TypeList<QInt8, QUInt8>;

Status quantized_conv_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(WindowSpec<2> spec, read_conv_spec<2>(c.attrs()));
  MR_TRY_ASSIGN(const PartialShape input, c.with_rank(0, 4));
  MR_TRY_ASSIGN(const PartialShape filter, c.with_rank(1, 4));
  for (int i = 2; i < 6; ++i) MR_TRY(c.with_rank(i, 0).status());
  MR_TRY(PartialShape{input.dim(3)}.merge(PartialShape{filter.dim(2)}).status());
  spec.set_windows(filter);
  MR_TRY_ASSIGN(PartialShape out, partial_output_shape(spec, input, filter.dim(3)));
  c.set_output(0, std::move(out));
  c.set_output(1, PartialShape::scalar());
  c.set_output(2, PartialShape::scalar());
  return ok_status();
}

// The range that quantised numbers of type I stand for.
template <class I>
struct Range {
  static constexpr double kLeast = std::numeric_limits<I>::min();
  static constexpr double kMost = std::numeric_limits<I>::max();
  double min, max;

  double step() const { return (max - min) / (kMost - kLeast); }
  // What stands for zero.
  int32_t zero() const {
    if (min == max) return static_cast<int32_t>(kLeast);
    const double at = kLeast - std::round(min / step());
    if (std::isnan(at)) return 0;
    return static_cast<int32_t>(std::clamp(at, -1e9, 1e9));  // far beyond all numbers of the type
  }
};

template <class QIn, class QFilter>
class QuantizedConv : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const WindowSpec<2> spec, read_conv_spec<2>(node.attrs));
    return std::make_unique<QuantizedConv>(spec);
  }
  explicit QuantizedConv(const WindowSpec<2>& spec) : spec_(spec) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor &input = ctx.input(0), &filter = ctx.input(1);
    MR_TRY(expect_rank(ctx, 0, 4));
    MR_TRY(expect_rank(ctx, 1, 4));
    for (int i = 2; i < 6; ++i) MR_TRY(expect_rank(ctx, i, 0));
    if (input.dim(3) != filter.dim(2)) {
      return invalid_argument("input and filter must have the same depth: ", input.shape(), " and ",
                              filter.shape());
    }
    WindowSpec<2> spec = spec_;
    spec.set_windows(filter.shape());
    MR_TRY_ASSIGN(const WindowGeometry<2> geometry, window_geometry(spec, input.shape()));
    MR_TRY_ASSIGN(const Shape shape, output_shape(spec, input.dim(0), geometry, filter.dim(3)));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    MR_TRY_ASSIGN(Tensor * min, ctx.allocate_output(1, Shape{}));
    MR_TRY_ASSIGN(Tensor * max, ctx.allocate_output(2, Shape{}));
    const auto number = [&](int i) { return static_cast<double>(ctx.input(i).data<float>()[0]); };
    const Range<decltype(QIn::value)> of_input{number(2), number(3)};
    const Range<decltype(QFilter::value)> of_filter{number(4), number(5)};
    const double step = of_input.step() * of_filter.step();
    min->mutable_data<float>()[0] = static_cast<float>(step * std::numeric_limits<int32_t>::min());
    max->mutable_data<float>()[0] = static_cast<float>(step * std::numeric_limits<int32_t>::max());
    if (out->num_elements() > 0) {
      convolve(ctx, geometry, of_input.zero(), of_filter.zero(), *out);
    }
    return ok_status();
  }

 private:
  // Sums wrap; what lies beside the image counts as zero.
  static void convolve(KernelContext& ctx, const WindowGeometry<2>& geometry, int32_t input_zero,
                       int32_t filter_zero, Tensor& out) {
    const Tensor &input = ctx.input(0), &filter = ctx.input(1);
    const AxisGeometry &rows = geometry[0], &columns = geometry[1];
    const int64_t depth = input.dim(3), channels = filter.dim(3);
    const QIn* const image = input.template data<QIn>().data();
    const QFilter* const weights = filter.template data<QFilter>().data();
    QInt32* const to = out.mutable_data<QInt32>().data();
    const double cost = static_cast<double>(filter.num_elements());
    const auto pixel = [&](int64_t place) {
      const int64_t x = place % columns.output, y = place / columns.output % rows.output;
      const int64_t batch = place / columns.output / rows.output;
      std::vector<uint32_t> sums(static_cast<size_t>(channels), 0);
      for (int64_t r = rows.first(y); r < rows.last(y); ++r) {
        for (int64_t s = columns.first(x); s < columns.last(x); ++s) {
          const int64_t row = rows.origin(y) + r * rows.dilation;
          const int64_t column = columns.origin(x) + s * columns.dilation;
          const QIn* from = image + ((batch * rows.input + row) * columns.input + column) * depth;
          const QFilter* weight = weights + (r * columns.window + s) * depth * channels;
          for (int64_t d = 0; d < depth; ++d, weight += channels) {
            const auto a = static_cast<uint32_t>(from[d].value - input_zero);
            for (int64_t k = 0; k < channels; ++k) {
              sums[static_cast<size_t>(k)] +=
                  a * static_cast<uint32_t>(weight[k].value - filter_zero);
            }
          }
        }
      }
      for (int64_t k = 0; k < channels; ++k) {
        to[place * channels + k].value = static_cast<int32_t>(sums[static_cast<size_t>(k)]);
      }
    };
    ctx.parallel_for(out.num_elements() / channels, cost, [&](int64_t begin, int64_t end) {
      for (int64_t place = begin; place < end; ++place) pixel(place);
    });
  }

  const WindowSpec<2> spec_;
};

template <class QIn, class... QFilters>
void register_filters(Registry& registry, TypeList<QFilters...>) {
  (registry.kernel({.op = "QuantizedConv2D",
                    .constraints = {{"Tinput", {dtype_of<QIn>}},
                                    {"Tfilter", {dtype_of<QFilters>}},
                                    {"out_type", {DType::kQInt32}}},
                    .factory = &QuantizedConv<QIn, QFilters>::make}),
   ...);
}

template <class... Qs>
void register_kernels(Registry& registry, TypeList<Qs...>) {
  (register_filters<Qs>(registry, Types()), ...);
}

}  // namespace

void register_quantized_conv(Registry& registry) {
  registry.add(
      {.name = "QuantizedConv2D",
       .doc = "The convolution of quantised images, and the range that its numbers have.",
       .inputs = {{"input", "Tinput"},
                  {"filter", "Tfilter"},
                  {"min_input", "float"},
                  {"max_input", "float"},
                  {"min_filter", "float"},
                  {"max_filter", "float"}},
       .outputs = {{"output", "out_type"}, {"min_output", "float"}, {"max_output", "float"}},
       .types = {{"Tinput", kQuantized},
                 {"Tfilter", kQuantized},
                 {"out_type", kQuantized, DType::kQInt32}},
       .attrs = {{"strides", "list(int)"},
                 {"padding", "string in {'SAME','VALID'}"},
                 {"dilations", "list(int) = [1,1,1,1]"}},
       .traits = {.cost = 500},
       .shape = quantized_conv_shape,
       .no_gradient = "its inputs are quantised"});
  register_kernels(registry, Types());
}

}  // namespace millrace
