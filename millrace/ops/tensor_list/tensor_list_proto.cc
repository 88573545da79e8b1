// Lists as bytes and tensors, in TensorFlow's layout: the tensors are those of the elements that
// are set; the metadata is made of varints (how many elements are unset, the index of each, dtype,
// largest length) and the element shape as a message.

#include <algorithm>
#include <utility>

#include "millrace/ops/tensor_list/tensor_list.h"
#include "millrace/tensor/tensor_proto.h"
#include "proto/tensor_shape.pb.h"

namespace millrace {
namespace {

// Unset elements take no memory until they are written.
constexpr int64_t kMaxWrittenUnset = int64_t{1} << 24;

void write_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

Result<uint64_t> read_varint(std::string_view& in) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(in.front());
    in.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return invalid_argument("the metadata of a tensor list ends within a number");
}

}  // namespace

Status TensorList::encode(std::string& metadata, std::vector<Tensor>& tensors) const {
  MR_TRY(for_each_set([&](int64_t, const Tensor& element) {
    tensors.push_back(element);
    return ok_status();
  }));
  const int64_t unset = length_ - static_cast<int64_t>(tensors.size());
  if (unset > kMaxWrittenUnset) {
    return resource_exhausted("a list with ", unset, " unset elements is too large to be written");
  }
  write_varint(metadata, static_cast<uint64_t>(unset));
  for (int64_t i = 0; i < length_ && unset > 0; ++i) {
    if (!get(i).valid()) write_varint(metadata, static_cast<uint64_t>(i));
  }
  write_varint(metadata, static_cast<uint64_t>(element_dtype_));
  write_varint(metadata, static_cast<uint64_t>(max_num_elements_));
  tensorflow::TensorShapeProto shape;
  shape_to_proto(element_shape_, shape);
  if (!shape.AppendToString(&metadata)) return internal("a shape cannot be serialised");
  return ok_status();
}

Result<Ref<VariantObject>> TensorList::decode(std::string_view metadata,
                                              std::vector<Tensor> tensors) {
  MR_TRY_ASSIGN(const uint64_t unset, read_varint(metadata));
  if (unset > metadata.size()) {
    return invalid_argument("a tensor list of ", metadata.size(), " bytes of metadata cannot have ",
                            unset, " unset elements");
  }
  std::vector<uint64_t> unset_at(unset);
  for (uint64_t& i : unset_at) {
    MR_TRY_ASSIGN(i, read_varint(metadata));
  }
  MR_TRY_ASSIGN(const uint64_t dtype, read_varint(metadata));
  if (dtype >= static_cast<uint64_t>(kNumDTypes) || !is_valid(static_cast<DType>(dtype))) {
    return invalid_argument("a tensor list cannot have elements of type number ", dtype);
  }
  MR_TRY_ASSIGN(const uint64_t most, read_varint(metadata));
  tensorflow::TensorShapeProto proto;
  if (!proto.ParseFromArray(metadata.data(), static_cast<int>(metadata.size()))) {
    return invalid_argument("the element shape of a tensor list cannot be read");
  }
  MR_TRY_ASSIGN(PartialShape shape, shape_from_proto(proto));
  Ref<TensorList> list =
      make_ref<TensorList>(static_cast<DType>(dtype), std::move(shape),
                           std::max(static_cast<int64_t>(most), TensorList::kUnlimited));
  const uint64_t length = unset + tensors.size();
  MR_TRY(list->resize(static_cast<int64_t>(length)));
  int64_t at = 0;
  size_t next_unset = 0, next_tensor = 0;
  for (; static_cast<uint64_t>(at) < length; ++at) {
    if (next_unset < unset_at.size() && unset_at[next_unset] == static_cast<uint64_t>(at)) {
      ++next_unset;
    } else if (next_tensor < tensors.size()) {
      MR_TRY(list->set(at, std::move(tensors[next_tensor++])));
    } else {
      return invalid_argument("a tensor list of ", length, " elements says that element ",
                              unset_at[next_unset], " is unset");
    }
  }
  return Ref<VariantObject>(std::move(list));
}

}  // namespace millrace
