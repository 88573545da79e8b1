// Tensors and other messages as strings.

#include "millrace/graph/shape_context.h"
#include "millrace/io/compression.h"
#include "millrace/io/example_json.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/strings/map_strings.h"
#include "millrace/tensor/tensor_proto.h"
#include "proto/tensor.pb.h"

namespace millrace {
namespace {

Status parse_tensor_shape(ShapeContext& c) { return c.with_rank(0, 0).status(); }

Status parse_tensor(KernelContext& ctx) {
  const Tensor& serialized = ctx.input(0);
  if (serialized.rank() != 0) {
    return invalid_argument("Expected `serialized` to be a scalar, got shape: ",
                            serialized.shape());
  }
  const std::string& bytes = serialized.data<std::string>()[0];
  tensorflow::TensorProto proto;
  if (!proto.ParseFromString(bytes)) {
    constexpr size_t kShown = 64;
    return invalid_argument("Could not parse `serialized` as TensorProto: '",
                            std::string_view(bytes).substr(0, kShown),
                            bytes.size() > kShown ? "'..." : "'");
  }
  MR_TRY_ASSIGN(Tensor tensor, tensor_from_proto(proto));
  if (tensor.dtype() != ctx.output_type(0)) {
    return invalid_argument("Type mismatch between parsed tensor (", tensor.dtype(),
                            ") and dtype (", ctx.output_type(0), ")");
  }
  ctx.set_output(0, std::move(tensor));
  return ok_status();
}

Status serialize_tensor(KernelContext& ctx) {
  tensorflow::TensorProto proto;
  MR_TRY(tensor_to_proto(ctx.input(0), proto));
  ctx.set_output(0, Tensor::scalar<std::string>(proto.SerializeAsString()));
  return ok_status();
}

Status decode_json_example(KernelContext& ctx) {
  size_t index = 0;
  return map_strings<std::string>(ctx, [&](const std::string& json) -> Result<std::string> {
    Result<std::string> example = example_from_json(json);
    if (!example.ok()) {
      return invalid_argument(example.status().message(), " (string ", index, ")");
    }
    ++index;
    return example;
  });
}

Result<Compression> read_compression(const AttrMap& attrs) {
  MR_TRY_ASSIGN(const std::string type, read_attr<std::string>(attrs, "compression_type"));
  return parse_compression(type);
}

Status decode_compressed_shape(ShapeContext& c) {
  MR_TRY(read_compression(c.attrs()).status());
  return shape_rules::unchanged(c);
}

class DecodeCompressed : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const Compression kind, read_compression(node.attrs));
    return std::make_unique<DecodeCompressed>(kind);
  }
  explicit DecodeCompressed(Compression kind) : kind_(kind) {}

  Status compute(KernelContext& ctx) const override {
    return map_strings<std::string>(
        ctx, [&](const std::string& bytes) { return inflate_all(bytes, kind_); });
  }

 private:
  const Compression kind_;
};

}  // namespace

void register_parse_tensor(Registry& registry) {
  registry.add({.name = "ParseTensor",
                .doc = "The tensor in a serialized TensorProto.",
                .inputs = {{"serialized", "string"}},
                .outputs = {{"output", "out_type"}},
                .types = {{"out_type", {}}},
                .traits = {.cannot_differentiate = true},
                .shape = parse_tensor_shape});
  registry.kernel("ParseTensor", DeviceKind::kCpu, parse_tensor);
  registry.add({.name = "SerializeTensor",
                .doc = "A tensor as a serialized TensorProto.",
                .inputs = {{"tensor", "T"}},
                .outputs = {{"serialized", "string"}},
                .types = {{"T", {}}},
                .traits = {.cannot_differentiate = true},
                .shape = shape_rules::scalar});
  registry.kernel("SerializeTensor", DeviceKind::kCpu, serialize_tensor);
  registry.add({.name = "DecodeJSONExample",
                .doc = "Examples written in JSON as serialized ones.",
                .inputs = {{"json_examples", "string"}},
                .outputs = {{"binary_examples", "string"}},
                .traits = {.cannot_differentiate = true, .cost = 1000},
                .shape = shape_rules::unchanged});
  registry.kernel("DecodeJSONExample", DeviceKind::kCpu, decode_json_example);
  registry.add({.name = "DecodeCompressed",
                .doc = "Strings with their compression undone: zlib, gzip or none.",
                .inputs = {{"bytes", "string"}},
                .outputs = {{"output", "string"}},
                .attrs = {{"compression_type", "string = ''", "'', 'ZLIB' or 'GZIP'."}},
                .traits = {.cannot_differentiate = true, .cost = 1000},
                .shape = decode_compressed_shape});
  registry.kernel<DecodeCompressed>("DecodeCompressed", DeviceKind::kCpu);
}

}  // namespace millrace
