// ScalarSummary and HistogramSummary.

#include <cmath>

#include "millrace/io/histogram.h"
#include "millrace/ops/summary/summary_op.h"
#include "millrace/tensor/dispatch.h"
#include "proto/summary.pb.h"

namespace millrace {
namespace {

using SummaryTypes = TypeList<float, double, int32_t, int64_t, uint8_t, int16_t, int8_t, uint16_t,
                              Half, BFloat16, uint32_t, uint64_t>;

Status scalar_shape(ShapeContext& c) {
  MR_TRY(c.input(0).merge(c.input(1)).status());
  c.set_output(0, PartialShape::scalar());
  return ok_status();
}

Status histogram_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(0, 0).status());
  c.set_output(0, PartialShape::scalar());
  return ok_status();
}

template <class T>
Status scalar_summary(KernelContext& ctx) {
  const Tensor &tags = ctx.input(0), &values = ctx.input(1);
  if (tags.shape() != values.shape()) {
    return invalid_argument("tags and values not the same shape: ", tags.shape(),
                            " != ", values.shape());
  }
  tensorflow::Summary summary;
  for (size_t i = 0; i < static_cast<size_t>(values.num_elements()); ++i) {
    tensorflow::Summary::Value& value = *summary.add_value();
    value.set_tag(text_of(tags.data<std::string>()[i]));
    value.set_simple_value(static_cast<float>(values.data<T>()[i]));
  }
  return set_summary(ctx, summary);
}

template <class T>
Status histogram_summary(KernelContext& ctx) {
  MR_TRY_ASSIGN(const std::string tag, tag_input(ctx));
  Histogram histogram;
  for (const T element : ctx.input(1).data<T>()) {
    const double value = static_cast<double>(element);
    if (std::isnan(value)) return invalid_argument("Nan in summary histogram for: ", tag);
    if (std::isinf(value)) return invalid_argument("Infinity in summary histogram for: ", tag);
    histogram.add(value);
  }
  tensorflow::Summary summary;
  tensorflow::Summary::Value& value = *summary.add_value();
  value.set_tag(tag);
  histogram.write(*value.mutable_histo());
  return set_summary(ctx, summary);
}

template <class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  (registry.kernel<Ts>("ScalarSummary", DeviceKind::kCpu, &scalar_summary<Ts>), ...);
  (registry.kernel<Ts>("HistogramSummary", DeviceKind::kCpu, &histogram_summary<Ts>), ...);
}

}  // namespace

void register_number_summaries(Registry& registry) {
  registry.add({.name = "ScalarSummary",
                .doc = "A summary of numbers, each under its tag.",
                .inputs = {{"tags", "string"}, {"values", "T"}},
                .outputs = {{"summary", "string"}},
                .types = {{"T", type_set_of<SummaryTypes>}},
                .traits = {.cannot_differentiate = true, .cost = 200},
                .shape = scalar_shape,
                .no_gradient = kSummaryNoGradient});
  registry.add({.name = "HistogramSummary",
                .doc = "A summary of how the values are spread; they must be finite.",
                .inputs = {{"tag", "string"}, {"values", "T"}},
                .outputs = {{"summary", "string"}},
                .types = {{"T", type_set_of<SummaryTypes>, DType::kFloat}},
                .traits = {.cannot_differentiate = true, .cost = 20},
                .shape = histogram_shape,
                .no_gradient = kSummaryNoGradient});
  register_kernels(registry, SummaryTypes());
}

}  // namespace millrace
