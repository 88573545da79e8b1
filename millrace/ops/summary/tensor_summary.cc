// TensorSummary and TensorSummaryV2.

#include "millrace/ops/summary/summary_op.h"
#include "millrace/tensor/tensor_proto.h"
#include "proto/summary.pb.h"
#include "proto/tensor.pb.h"

namespace millrace {
namespace {

Status tensor_shape(ShapeContext& c) {
  if (c.num_inputs() == 3) {
    MR_TRY(c.with_rank(0, 0).status());
    MR_TRY(c.with_rank(2, 0).status());
  }
  c.set_output(0, PartialShape::scalar());
  return ok_status();
}

// TensorBoard reads strings one by one only.
Status set_tensor(const Tensor& tensor, tensorflow::Summary::Value& value) {
  return tensor_to_proto(
      tensor, *value.mutable_tensor(),
      tensor.dtype() == DType::kString ? TensorEncoding::kTypedField : TensorEncoding::kContent);
}

Status tensor_summary(KernelContext& ctx) {
  tensorflow::Summary summary;
  tensorflow::Summary::Value& value = *summary.add_value();
  value.set_node_name(ctx.node().name);
  MR_TRY(set_tensor(ctx.input(0), value));
  return set_summary(ctx, summary);
}

Status tensor_summary_v2(KernelContext& ctx) {
  MR_TRY_ASSIGN(const std::string tag, tag_input(ctx));
  MR_TRY(expect_rank(ctx, 2, 0));
  tensorflow::Summary summary;
  tensorflow::Summary::Value& value = *summary.add_value();
  value.set_tag(tag);
  if (!value.mutable_metadata()->ParseFromString(ctx.input(2).data<std::string>()[0])) {
    return invalid_argument("serialized_summary_metadata is not a SummaryMetadata message");
  }
  MR_TRY(set_tensor(ctx.input(1), value));
  return set_summary(ctx, summary);
}

}  // namespace

void register_tensor_summary(Registry& registry) {
  registry.add({.name = "TensorSummary",
                .doc = "A summary that holds a tensor, under the node's name.",
                .inputs = {{"tensor", "T"}},
                .outputs = {{"summary", "string"}},
                .types = {{"T", {}}},
                .attrs = {{"description", "string = ''"},
                          {"labels", "list(string) = []"},
                          {"display_name", "string = ''"}},
                .traits = {.cannot_differentiate = true, .cost = 100},
                .shape = tensor_shape,
                .no_gradient = kSummaryNoGradient});
  registry.add(
      {.name = "TensorSummaryV2",
       .doc = "A summary that holds a tensor, with what says how to show it.",
       .inputs = {{"tag", "string"}, {"tensor", "T"}, {"serialized_summary_metadata", "string"}},
       .outputs = {{"summary", "string"}},
       .types = {{"T", {}}},
       .traits = {.cannot_differentiate = true, .cost = 100},
       .shape = tensor_shape,
       .no_gradient = kSummaryNoGradient});
  registry.kernel("TensorSummary", DeviceKind::kCpu, tensor_summary);
  registry.kernel("TensorSummaryV2", DeviceKind::kCpu, tensor_summary_v2);
}

}  // namespace millrace
