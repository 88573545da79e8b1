#include "millrace/tensor/tensor_proto.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "millrace/tensor/dispatch.h"
#include "millrace/tensor/element_patterns.h"
#include "millrace/tensor/resource_handle.h"
#include "millrace/tensor/variant.h"
#include "proto/resource_handle.pb.h"
#include "proto/tensor.pb.h"
#include "proto/tensor_shape.pb.h"

namespace millrace {
namespace {

using tensorflow::ResourceHandleProto;
using tensorflow::TensorProto;
using tensorflow::VariantTensorDataProto;

static_assert(std::endian::native == std::endian::little,
              "tensor_content is little-endian and copied as it is");

constexpr int64_t kTwoGiB = int64_t{1} << 31;
constexpr int kMaxVariantDepth = 32;

// What one message may still make, over all tensors nested in it.
class Budget {
 public:
  // RESOURCE_EXHAUSTED when count * size bytes are more than is left.
  Status take(int64_t count, size_t size) {
    int64_t bytes;
    if (__builtin_mul_overflow(count, static_cast<int64_t>(size), &bytes) || bytes > left_) {
      return resource_exhausted("a TensorProto may hold up to ", kTwoGiB,
                                " bytes of elements in memory; this one asks for ", count,
                                " times ", size, " more with ", left_, " left");
    }
    left_ -= bytes;
    return ok_status();
  }

 private:
  int64_t left_ = kTwoGiB;
};

Result<Tensor> read_tensor(const TensorProto& proto, Budget& budget, int depth);

template <class T, class Field, class Convert>
void fill(Tensor& tensor, const Field& field, Convert convert) {
  const std::span<T> out = tensor.mutable_data<T>();
  const size_t given = std::min(out.size(), static_cast<size_t>(field.size()));
  for (size_t i = 0; i < given; ++i) out[i] = convert(field[static_cast<int>(i)]);
  std::fill(out.begin() + static_cast<ptrdiff_t>(given), out.end(),
            given > 0 ? out[given - 1] : T());
}

template <class T, class Field>
void fill_complex(Tensor& tensor, const Field& field) {
  using Part = typename T::value_type;
  const std::span<T> out = tensor.mutable_data<T>();
  const size_t given = std::min(out.size(), static_cast<size_t>(field.size()) / 2);
  for (size_t i = 0; i < given; ++i) {
    const int at = static_cast<int>(2 * i);
    out[i] = T(static_cast<Part>(field[at]), static_cast<Part>(field[at + 1]));
  }
  std::fill(out.begin() + static_cast<ptrdiff_t>(given), out.end(),
            given > 0 ? out[given - 1] : T());
}

template <class T>
T from_low_bits(int32_t v) {
  return T::from_bits(static_cast<uint16_t>(v));
}

template <class T>
void fill_plain(Tensor& tensor, const TensorProto& proto) {
  const auto as_is = [](auto v) { return static_cast<T>(v); };
  if constexpr (std::is_same_v<T, float>) {
    fill<T>(tensor, proto.float_val(), as_is);
  } else if constexpr (std::is_same_v<T, double>) {
    fill<T>(tensor, proto.double_val(), as_is);
  } else if constexpr (std::is_same_v<T, Half>) {
    fill<T>(tensor, proto.half_val(), from_low_bits<T>);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    // Files of TensorFlow 1 have the bits in int_val.
    fill<T>(tensor, proto.half_val_size() > 0 ? proto.half_val() : proto.int_val(),
            from_low_bits<T>);
  } else if constexpr (std::is_same_v<T, Complex64>) {
    fill_complex<T>(tensor, proto.scomplex_val());
  } else if constexpr (std::is_same_v<T, Complex128>) {
    fill_complex<T>(tensor, proto.dcomplex_val());
  } else if constexpr (std::is_same_v<T, bool>) {
    fill<T>(tensor, proto.bool_val(), as_is);
  } else if constexpr (std::is_same_v<T, int64_t>) {
    fill<T>(tensor, proto.int64_val(), as_is);
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    fill<T>(tensor, proto.uint64_val(), as_is);
  } else if constexpr (std::is_same_v<T, uint32_t>) {
    fill<T>(tensor, proto.uint32_val(), as_is);
  } else if constexpr (requires(T v) { v.bits; }) {
    fill<T>(tensor, proto.float8_val(),
            [](char c) { return T::from_bits(static_cast<uint8_t>(c)); });
  } else if constexpr (kQuantized.contains(dtype_of<T>)) {
    fill<T>(tensor, proto.int_val(),
            [](int32_t v) { return T{static_cast<decltype(T::value)>(v)}; });
  } else {
    fill<T>(tensor, proto.int_val(), as_is);
  }
}

Result<Tensor> read_plain(const TensorProto& proto, DType dtype, Shape shape, Budget& budget) {
  const std::string_view content = proto.tensor_content();
  const int64_t count = shape.num_elements();
  MR_TRY(budget.take(count, dtype_size(dtype)));
  const size_t expected = static_cast<size_t>(count) * dtype_size(dtype);
  if (!content.empty() && content.size() != expected) {
    return invalid_argument("tensor_content of ", dtype, ' ', shape, " must have ", expected,
                            " bytes, got ", content.size());
  }
  MR_TRY_ASSIGN(Tensor tensor, Tensor::allocate(dtype, std::move(shape)));
  if (content.empty()) {
    MR_TRY(dispatch<PlainTypes>(dtype, [&]<class T>() { fill_plain<T>(tensor, proto); }));
    return tensor;
  }
  std::memcpy(tensor.mutable_raw(), content.data(), content.size());
  repair_elements(tensor);
  return tensor;
}

// Cuts `content`, N varint32 lengths followed by N values, into the values. `count` is at least 1.
Result<std::vector<std::string_view>> split_content(std::string_view content, int64_t count) {
  if (static_cast<uint64_t>(count) > content.size()) {
    return invalid_argument("tensor_content must begin with ", count, " lengths, but has only ",
                            content.size(), " bytes");
  }
  std::vector<uint32_t> lengths;
  lengths.reserve(static_cast<size_t>(count));
  size_t at = 0;
  uint64_t total = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint64_t length = 0;
    for (int shift = 0;; shift += 7) {
      if (at == content.size() || shift > 28) {
        return invalid_argument("length ", i, " of ", count,
                                " in tensor_content is cut off or longer than 32 bits");
      }
      const auto byte = static_cast<uint8_t>(content[at++]);
      length |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    if (length > std::numeric_limits<uint32_t>::max()) {
      return invalid_argument("length ", i, " of ", count,
                              " in tensor_content is longer than 32 bits");
    }
    lengths.push_back(static_cast<uint32_t>(length));
    total += length;
  }
  if (total != content.size() - at) {
    return invalid_argument("the lengths in tensor_content add up to ", total, " bytes, but ",
                            content.size() - at, " follow");
  }
  std::vector<std::string_view> values;
  values.reserve(lengths.size());
  for (const uint32_t length : lengths) {
    values.push_back(content.substr(at, length));
    at += length;
  }
  return values;
}

// How often the last value of a typed field of `given` values is repeated.
int64_t repeats(int64_t count, int given) {
  return given > 0 ? std::max<int64_t>(count - given, 0) : 0;
}

Result<Tensor> read_strings(const TensorProto& proto, Shape shape, Budget& budget) {
  const int64_t count = shape.num_elements();
  MR_TRY(budget.take(count, sizeof(std::string)));
  if (!proto.tensor_content().empty()) {
    MR_TRY_ASSIGN(const auto values, split_content(proto.tensor_content(), count));
    MR_TRY_ASSIGN(Tensor tensor, Tensor::allocate(DType::kString, std::move(shape)));
    const std::span<std::string> out = tensor.mutable_data<std::string>();
    for (size_t i = 0; i < out.size(); ++i) out[i] = values[i];
    return tensor;
  }
  const auto& field = proto.string_val();
  if (const int64_t n = repeats(count, field.size()); n > 0) {
    MR_TRY(budget.take(n, field[field.size() - 1].size()));
  }
  MR_TRY_ASSIGN(Tensor tensor, Tensor::allocate(DType::kString, std::move(shape)));
  fill<std::string>(tensor, field, [](const std::string& v) { return v; });
  return tensor;
}

Result<ResourceHandle> read_handle(const ResourceHandleProto& proto) {
  ResourceHandle handle;
  handle.device = proto.device();
  handle.container = proto.container();
  handle.name = proto.name();
  handle.type_name = proto.maybe_type_name();
  for (const auto& item : proto.dtypes_and_shapes()) {
    MR_TRY_ASSIGN(PartialShape shape, shape_from_proto(item.shape()));
    handle.contents.push_back({static_cast<DType>(item.dtype()), std::move(shape)});
  }
  return handle;
}

void write_handle(const ResourceHandle& handle, ResourceHandleProto& proto) {
  proto.set_device(handle.device);
  proto.set_container(handle.container);
  proto.set_name(handle.name);
  proto.set_maybe_type_name(handle.type_name);
  for (const auto& item : handle.contents) {
    auto* const out = proto.add_dtypes_and_shapes();
    out->set_dtype(static_cast<tensorflow::DataType>(item.dtype));
    shape_to_proto(item.shape, *out->mutable_shape());
  }
}

Result<Variant> read_variant(const VariantTensorDataProto& proto, Budget& budget, int depth) {
  if (proto.type_name().empty()) return Variant();
  if (depth >= kMaxVariantDepth) {
    return invalid_argument("variants are nested more than ", kMaxVariantDepth, " deep");
  }
  std::vector<Tensor> tensors;
  for (const TensorProto& item : proto.tensors()) {
    MR_TRY_ASSIGN(Tensor tensor, read_tensor(item, budget, depth + 1));
    tensors.push_back(std::move(tensor));
  }
  return decode_variant(proto.type_name(), proto.metadata(), std::move(tensors));
}

// Elements that are messages: `field` or, packed, `content`. `read` makes one element of a message.
template <class T, class Message, class Field, class Read>
Result<Tensor> read_messages(const std::string& content, const Field& field, Shape shape,
                             Budget& budget, Read read) {
  const int64_t count = shape.num_elements();
  MR_TRY(budget.take(count, sizeof(T)));
  std::vector<std::string_view> packed;
  if (!content.empty()) {
    MR_TRY_ASSIGN(packed, split_content(content, count));
  } else if (const int64_t n = repeats(count, field.size()); n > 0) {
    MR_TRY(budget.take(n, field[field.size() - 1].ByteSizeLong()));
  }
  MR_TRY_ASSIGN(Tensor tensor, Tensor::allocate(dtype_of<T>, std::move(shape)));
  const std::span<T> out = tensor.mutable_data<T>();
  const size_t given = content.empty() ? static_cast<size_t>(field.size()) : packed.size();
  for (size_t i = 0; i < out.size() && i < given; ++i) {
    Message parsed;
    const Message* message = &parsed;
    if (content.empty()) {
      message = &field[static_cast<int>(i)];
    } else if (!parsed.ParseFromArray(packed[i].data(), static_cast<int>(packed[i].size()))) {
      return invalid_argument("element ", i, " of tensor_content is no ", Message().GetTypeName());
    }
    MR_TRY_ASSIGN(out[i], read(*message));
  }
  for (size_t i = given; given > 0 && i < out.size(); ++i) out[i] = out[given - 1];
  return tensor;
}

Result<Tensor> read_tensor(const TensorProto& proto, Budget& budget, int depth) {
  const auto dtype = static_cast<DType>(proto.dtype());
  if (!is_valid(dtype) || is_ref(dtype)) {
    return invalid_argument("a TensorProto cannot have dtype ", dtype);
  }
  MR_TRY_ASSIGN(const PartialShape partial, shape_from_proto(proto.tensor_shape()));
  MR_TRY_ASSIGN(Shape shape, partial.to_shape());
  if (shape.num_elements() == 0) return Tensor::allocate(dtype, std::move(shape));
  switch (dtype) {
    case DType::kString:
      return read_strings(proto, std::move(shape), budget);
    case DType::kResource:
      return read_messages<ResourceHandle, ResourceHandleProto>(
          proto.tensor_content(), proto.resource_handle_val(), std::move(shape), budget,
          read_handle);
    case DType::kVariant:
      return read_messages<Variant, VariantTensorDataProto>(
          proto.tensor_content(), proto.variant_val(), std::move(shape), budget,
          [&](const VariantTensorDataProto& item) { return read_variant(item, budget, depth); });
    default:
      return read_plain(proto, dtype, std::move(shape), budget);
  }
}

Status too_large(const Tensor& tensor) {
  return resource_exhausted("a TensorProto cannot hold 2 GiB or more; ", tensor.dtype(), ' ',
                            tensor.shape(), " is too large");
}

template <class T>
void write_typed(const Tensor& tensor, TensorProto& proto) {
  const std::span<const T> in = tensor.data<T>();
  const auto each = [&](auto* field, auto convert) {
    field->Reserve(static_cast<int>(in.size()));
    for (const T& v : in) field->AddAlreadyReserved(convert(v));
  };
  const auto as_is = [](T v) { return v; };
  if constexpr (std::is_same_v<T, float>) {
    each(proto.mutable_float_val(), as_is);
  } else if constexpr (std::is_same_v<T, double>) {
    each(proto.mutable_double_val(), as_is);
  } else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    each(proto.mutable_half_val(), [](T v) { return static_cast<int32_t>(v.bits); });
  } else if constexpr (std::is_same_v<T, Complex64>) {
    for (const T& v : in) {
      proto.add_scomplex_val(v.real());
      proto.add_scomplex_val(v.imag());
    }
  } else if constexpr (std::is_same_v<T, Complex128>) {
    for (const T& v : in) {
      proto.add_dcomplex_val(v.real());
      proto.add_dcomplex_val(v.imag());
    }
  } else if constexpr (std::is_same_v<T, bool>) {
    each(proto.mutable_bool_val(), as_is);
  } else if constexpr (std::is_same_v<T, int64_t>) {
    each(proto.mutable_int64_val(), as_is);
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    each(proto.mutable_uint64_val(), as_is);
  } else if constexpr (std::is_same_v<T, uint32_t>) {
    each(proto.mutable_uint32_val(), as_is);
  } else if constexpr (requires(T v) { v.bits; }) {
    proto.mutable_float8_val()->assign(static_cast<const char*>(tensor.raw()), tensor.bytes());
  } else if constexpr (requires(T v) { v.value; }) {
    each(proto.mutable_int_val(), [](T v) { return static_cast<int32_t>(v.value); });
  } else {
    each(proto.mutable_int_val(), as_is);
  }
}

Status write_plain(const Tensor& tensor, TensorProto& proto, TensorEncoding encoding) {
  if (encoding == TensorEncoding::kContent) {
    proto.mutable_tensor_content()->assign(static_cast<const char*>(tensor.raw()), tensor.bytes());
    return ok_status();
  }
  return dispatch<PlainTypes>(tensor.dtype(), [&]<class T>() { write_typed<T>(tensor, proto); });
}

void append_varint(std::string& out, uint64_t v) {
  for (; v >= 0x80; v >>= 7) out += static_cast<char>(v | 0x80);
  out += static_cast<char>(v);
}

Status write_strings(const Tensor& tensor, TensorProto& proto, TensorEncoding encoding) {
  const std::span<const std::string> in = tensor.data<std::string>();
  uint64_t total = 0;
  for (const std::string& v : in) total += v.size() + 5;
  if (total >= static_cast<uint64_t>(kTwoGiB)) return too_large(tensor);
  if (encoding == TensorEncoding::kTypedField) {
    for (const std::string& v : in) proto.add_string_val(v);
    return ok_status();
  }
  std::string& out = *proto.mutable_tensor_content();
  out.reserve(total);
  for (const std::string& v : in) append_varint(out, v.size());
  for (const std::string& v : in) out += v;
  return ok_status();
}

Status write_handles(const Tensor& tensor, TensorProto& proto, TensorEncoding encoding) {
  std::string lengths;
  std::string values;
  for (const ResourceHandle& handle : tensor.data<ResourceHandle>()) {
    if (encoding == TensorEncoding::kTypedField) {
      write_handle(handle, *proto.add_resource_handle_val());
    } else {
      ResourceHandleProto item;
      write_handle(handle, item);
      append_varint(lengths, item.ByteSizeLong());
      if (!item.AppendToString(&values)) return internal("a resource handle cannot be serialised");
    }
    if (lengths.size() + values.size() >= static_cast<size_t>(kTwoGiB)) return too_large(tensor);
  }
  if (encoding == TensorEncoding::kContent) *proto.mutable_tensor_content() = lengths + values;
  return ok_status();
}

Status write_tensor(const Tensor& tensor, TensorProto& proto, TensorEncoding encoding, int depth);

Status write_variants(const Tensor& tensor, TensorProto& proto, int depth) {
  if (depth >= kMaxVariantDepth) {
    return invalid_argument("variants are nested more than ", kMaxVariantDepth, " deep");
  }
  size_t total = 0;
  for (const Variant& variant : tensor.data<Variant>()) {
    VariantTensorDataProto& out = *proto.add_variant_val();
    if (!variant.object) continue;
    std::vector<Tensor> tensors;
    out.set_type_name(std::string(variant.object->type_name()));
    MR_TRY(variant.object->encode(*out.mutable_metadata(), tensors));
    for (const Tensor& item : tensors) {
      MR_TRY(write_tensor(item, *out.add_tensors(), TensorEncoding::kContent, depth + 1));
    }
    total += out.ByteSizeLong();
    if (total >= static_cast<size_t>(kTwoGiB)) return too_large(tensor);
  }
  return ok_status();
}

Status write_tensor(const Tensor& tensor, TensorProto& proto, TensorEncoding encoding, int depth) {
  if (!tensor.valid()) return invalid_argument("a tensor without dtype cannot be written");
  if (tensor.buffer() && tensor.buffer()->space() == MemorySpace::kDevice) {
    return invalid_argument("a tensor in device memory must be copied to the host to be written");
  }
  proto.set_dtype(static_cast<tensorflow::DataType>(tensor.dtype()));
  shape_to_proto(tensor.shape(), *proto.mutable_tensor_shape());
  if (tensor.num_elements() == 0) return ok_status();
  switch (tensor.dtype()) {
    case DType::kString:
      return write_strings(tensor, proto, encoding);
    case DType::kResource:
      return write_handles(tensor, proto, encoding);
    case DType::kVariant:
      return write_variants(tensor, proto, depth);
    default:
      if (tensor.bytes() >= static_cast<size_t>(kTwoGiB)) return too_large(tensor);
      return write_plain(tensor, proto, encoding);
  }
}

}  // namespace

Result<Tensor> tensor_from_proto(const TensorProto& proto) {
  Budget budget;
  return read_tensor(proto, budget, 0);
}

Status tensor_to_proto(const Tensor& tensor, TensorProto& proto, TensorEncoding encoding) {
  proto.Clear();
  return write_tensor(tensor, proto, encoding, 0);
}

Result<PartialShape> shape_from_proto(const tensorflow::TensorShapeProto& proto) {
  if (proto.unknown_rank()) {
    if (proto.dim_size() > 0) {
      return invalid_argument("a shape of unknown rank cannot have dimensions, got ",
                              proto.dim_size());
    }
    return PartialShape::unknown();
  }
  if (proto.dim_size() > Shape::kMaxRank) {
    return invalid_argument("a shape has at most ", Shape::kMaxRank, " dimensions, got ",
                            proto.dim_size());
  }
  std::vector<int64_t> dims;
  for (const auto& dim : proto.dim()) dims.push_back(dim.size());
  return PartialShape::make(dims);
}

void shape_to_proto(const PartialShape& shape, tensorflow::TensorShapeProto& proto) {
  proto.Clear();
  if (!shape.rank_known()) proto.set_unknown_rank(true);
  for (const int64_t size : shape.dims()) proto.add_dim()->set_size(size);
}

}  // namespace millrace
