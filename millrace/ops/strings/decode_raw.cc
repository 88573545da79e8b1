#include <bit>
#include <cstring>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/tensor/element_patterns.h"

namespace millrace {
namespace {

constexpr TypeSet kRawTypes =
    kFloating | kComplex | TypeSet{DType::kInt8,   DType::kInt16,  DType::kInt32,
                                   DType::kInt64,  DType::kUInt8,  DType::kUInt16,
                                   DType::kUInt32, DType::kUInt64, DType::kBool};

Status decode_raw_shape(ShapeContext& c) {
  if (!c.input(0).rank_known()) return ok_status();
  PartialShape out = c.input(0);
  out.add_dim(PartialShape::kUnknownDim);
  MR_TRY_ASSIGN(out, PartialShape::make(out.dims()));
  c.set_output(0, std::move(out));
  return ok_status();
}

class DecodeRaw : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool little, node.attr<bool>("little_endian"));
    return std::make_unique<DecodeRaw>(little != (std::endian::native == std::endian::little));
  }
  explicit DecodeRaw(bool swap) : swap_(swap) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor& input = ctx.input(0);
    const std::span<const std::string> from = input.data<std::string>();
    const DType dtype = ctx.output_type(0);
    const size_t size = dtype_size(dtype), length = from.empty() ? 0 : from[0].size();
    for (size_t i = 1; i < from.size(); ++i) {
      if (from[i].size() == length) continue;
      return invalid_argument(
          "DecodeRaw requires input strings to all be the same size, but element ", i, " has size ",
          length, " != ", from[i].size());
    }
    if (length % size != 0) {
      return invalid_argument("Input to DecodeRaw has length ", length,
                              " that is not a multiple of ", size, ", the size of ", dtype);
    }
    MR_TRY_ASSIGN(const Shape shape,
                  input.shape().concat(Shape{static_cast<int64_t>(length / size)}));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (length == 0 || from.empty()) return ok_status();
    char* to = static_cast<char*>(out->mutable_raw());
    for (const std::string& bytes : from) {
      std::memcpy(to, bytes.data(), length);
      to += length;
    }
    repair_elements(*out);
    if (swap_) swap_bytes(*out);
    return ok_status();
  }

 private:
  // Of a complex number each part by itself.
  static void swap_bytes(Tensor& out) {
    const size_t size = dtype_size(out.dtype()) / (kComplex.contains(out.dtype()) ? 2 : 1);
    char* bytes = static_cast<char*>(out.mutable_raw());
    for (size_t at = 0; at < out.bytes(); at += size) {
      for (size_t i = 0; i < size / 2; ++i) std::swap(bytes[at + i], bytes[at + size - 1 - i]);
    }
  }

  const bool swap_;
};

}  // namespace

void register_decode_raw(Registry& registry) {
  registry.add({.name = "DecodeRaw",
                .doc = "The bytes of strings of one length read as numbers.",
                .inputs = {{"bytes", "string"}},
                .outputs = {{"output", "out_type", "With one more dimension, for the numbers."}},
                .types = {{"out_type", kRawTypes}},
                .attrs = {{"little_endian", "bool = true"}},
                .traits = {.cannot_differentiate = true, .cost = 1},
                .shape = decode_raw_shape});
  registry.kernel<DecodeRaw>("DecodeRaw", DeviceKind::kCpu);
}

}  // namespace millrace
