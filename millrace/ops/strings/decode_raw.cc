#include <algorithm>
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

constexpr TypeSet kPaddedTypes = kFloating | TypeSet{DType::kInt8,  DType::kInt16, DType::kInt32,
                                                     DType::kInt64, DType::kUInt8, DType::kUInt16};

// Of a complex number each part by itself.
void swap_bytes(Tensor& out) {
  const size_t size = dtype_size(out.dtype()) / (kComplex.contains(out.dtype()) ? 2 : 1);
  char* bytes = static_cast<char*>(out.mutable_raw());
  for (size_t at = 0; at < out.bytes(); at += size) {
    for (size_t i = 0; i < size / 2; ++i) std::swap(bytes[at + i], bytes[at + size - 1 - i]);
  }
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
  const bool swap_;
};

// How many numbers of `dtype` that many bytes are.
Result<int64_t> numbers_in(int64_t length, DType dtype) {
  const auto size = static_cast<int64_t>(dtype_size(dtype));
  if (length <= 0) {
    return invalid_argument("fixed_length (", length, ") must be greater than zero.");
  }
  if (length % size != 0) {
    return invalid_argument("fixed_length (", length,
                            ") must be a multiple of the size of out_type (", size, ")");
  }
  return length / size;
}

Status decode_padded_raw_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(1, 0).status());
  int64_t numbers = PartialShape::kUnknownDim;
  if (const auto length = c.input_scalar(1)) {
    MR_TRY_ASSIGN(numbers, numbers_in(*length, c.output_type(0)));
  }
  if (!c.input(0).rank_known()) return ok_status();
  PartialShape out = c.input(0);
  out.add_dim(numbers);
  MR_TRY_ASSIGN(out, PartialShape::make(out.dims()));
  c.set_output(0, std::move(out));
  return ok_status();
}

// Strings cut or filled up with zeros to `fixed_length` bytes.
class DecodePaddedRaw : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool little, node.attr<bool>("little_endian"));
    return std::make_unique<DecodePaddedRaw>(little !=
                                             (std::endian::native == std::endian::little));
  }
  explicit DecodePaddedRaw(bool swap) : swap_(swap) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor& input = ctx.input(0);
    if (ctx.input(1).rank() != 0) {
      return invalid_argument("fixed_length must be scalar, got shape ", ctx.input(1).shape());
    }
    MR_TRY_ASSIGN(const int64_t length, ctx.int_scalar_input(1));
    MR_TRY_ASSIGN(const int64_t numbers, numbers_in(length, ctx.output_type(0)));
    MR_TRY_ASSIGN(const Shape shape, input.shape().concat(Shape{numbers}));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    char* to = static_cast<char*>(out->mutable_raw());
    for (const std::string& bytes : input.data<std::string>()) {
      const size_t taken = std::min(bytes.size(), static_cast<size_t>(length));
      std::memcpy(to, bytes.data(), taken);
      std::memset(to + taken, 0, static_cast<size_t>(length) - taken);
      to += length;
    }
    if (swap_) swap_bytes(*out);
    return ok_status();
  }

 private:
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
  registry.add({.name = "DecodePaddedRaw",
                .doc = "The bytes of strings, cut or filled up to one length, read as numbers.",
                .inputs = {{"input_bytes", "string"}, {"fixed_length", "host(int32)"}},
                .outputs = {{"output", "out_type", "With one more dimension, for the numbers."}},
                .types = {{"out_type", kPaddedTypes}},
                .attrs = {{"little_endian", "bool = true"}},
                .traits = {.cannot_differentiate = true, .cost = 1},
                .shape = decode_padded_raw_shape});
  registry.kernel<DecodePaddedRaw>("DecodePaddedRaw", DeviceKind::kCpu);
}

}  // namespace millrace
