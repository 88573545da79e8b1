#include <map>

#include "millrace/io/bundle_index.h"
#include "millrace/io/checkpoint_v1.h"
#include "millrace/tensor/tensor_proto.h"
#include "proto/saved_tensor_slice.pb.h"

namespace millrace {
namespace {

// What an element takes in a message at most. Strings are measured when they are written.
int64_t bytes_in_message(DType dtype) {
  switch (dtype) {
    case DType::kString:
      return 0;
    case DType::kBool:
      return 1;
    case DType::kUInt8:
      return 2;
    case DType::kHalf:
    case DType::kBFloat16:
      return 3;
    case DType::kFloat:
      return 4;
    case DType::kDouble:
    case DType::kComplex64:
      return 8;
    case DType::kComplex128:
      return 16;
    default:
      return 10;  // a varint
  }
}

Status check_size(const V1Slice& slice) {
  constexpr int64_t kMaxMessage = (int64_t{1} << 31) - 1;
  const int64_t rest = static_cast<int64_t>(slice.name.size()) + 1024;
  const int64_t each = bytes_in_message(slice.elements.dtype());
  if (each == 0 || slice.elements.num_elements() <= (kMaxMessage - rest) / each) return ok_status();
  return invalid_argument("Tensor slice is too large to serialize: '", slice.name, "' ",
                          slice.elements.dtype(), slice.elements.shape(), " may take ", each,
                          " bytes an element, a file of version 1 holds slices of up to ",
                          kMaxMessage, " bytes");
}

Status add_to_list(const V1Slice& slice, std::map<std::string, StoredTensor>& tensors) {
  const Tensor& elements = slice.elements;
  if (!is_plain(elements.dtype()) && elements.dtype() != DType::kString) {
    return unimplemented("a tensor of ", elements.dtype(), " cannot be saved in a checkpoint: '",
                         slice.name, "'");
  }
  MR_TRY(check_size(slice));
  MR_TRY_ASSIGN(const TensorSlice box, slice.slice.within(slice.whole));
  MR_TRY_ASSIGN(const Shape shape, box.shape());
  if (shape != elements.shape()) {
    return invalid_argument("the slice '", slice.slice, "' of '", slice.name, "' has the shape ",
                            shape, ", the tensor to save has ", elements.shape());
  }
  const auto [place, fresh] =
      tensors.try_emplace(slice.name, StoredTensor{slice.name, elements.dtype(), slice.whole, {}});
  StoredTensor& tensor = place->second;
  if (tensor.dtype != elements.dtype() || tensor.shape != slice.whole) {
    return invalid_argument("slices of '", slice.name, "' must be of one tensor, got ",
                            tensor.dtype, tensor.shape, " and ", elements.dtype(), slice.whole);
  }
  MR_TRY(check_disjoint(tensor.slices, box, slice.whole).with_prefix(slice.name));
  tensor.slices.push_back(slice.slice);
  return ok_status();
}

Status write_table(FileSystem& fs, const std::string& path,
                   const std::map<std::string, StoredTensor>& tensors,
                   const std::map<std::string, const V1Slice*>& slices) {
  MR_TRY_ASSIGN(Ref<WritableFile> file, fs.open_writable(path));
  TableWriter table(file);
  tensorflow::SavedTensorSlices list;
  for (const auto& [name, tensor] : tensors) {
    tensorflow::SavedSliceMeta* meta = list.mutable_meta()->add_tensor();
    meta->set_name(name);
    meta->set_type(static_cast<tensorflow::DataType>(tensor.dtype));
    shape_to_proto(tensor.shape, *meta->mutable_shape());
    for (const TensorSlice& slice : tensor.slices) slice.to_proto(*meta->add_slice());
  }
  list.mutable_meta()->mutable_versions()->set_producer(1);
  MR_TRY(table.add("", list.SerializeAsString()));
  for (const auto& [key, slice] : slices) {
    tensorflow::SavedTensorSlices message;
    message.mutable_data()->set_name(slice->name);
    slice->slice.to_proto(*message.mutable_data()->mutable_slice());
    MR_TRY(tensor_to_proto(slice->elements, *message.mutable_data()->mutable_data(),
                           TensorEncoding::kTypedField)
               .with_prefix(str_cat("tensor '", slice->name, "'")));
    MR_TRY(table.add(key, message.SerializeAsString()));
  }
  MR_TRY(table.finish());
  MR_TRY(file->sync());
  return file->close();
}

}  // namespace

Status write_v1(FileSystem& fs, const std::string& path, const std::vector<V1Slice>& slices) {
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, const V1Slice*> by_key;
  for (const V1Slice& slice : slices) {
    MR_TRY(add_to_list(slice, tensors));
    if (!by_key.emplace(slice_key(slice.name, slice.slice), &slice).second) {
      return invalid_argument("Adding duplicate key: ", slice.name, " to '", path, "'");
    }
  }
  const std::string directory = directory_of(path);
  MR_TRY(fs.mkdir_all(directory));
  const std::string aside = path_aside(path);
  Status status = write_table(fs, aside, tensors, by_key);
  if (status.ok()) status = fs.rename(aside, path);
  if (!status.ok()) {
    (void)fs.remove(aside).ok();
    return status;
  }
  return fs.sync_directory(directory);
}

}  // namespace millrace
