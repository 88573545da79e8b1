#include <algorithm>
#include <set>
#include <utility>

#include "millrace/io/checkpoint_v1.h"
#include "millrace/tensor/tensor_proto.h"
#include "proto/saved_tensor_slice.pb.h"

namespace millrace {
namespace {

// One character of a pattern against `c`; `pattern` loses what was used. "[a-c]" and "[^a]" too.
bool match_one(std::string_view& pattern, char c) {
  const char first = pattern.front();
  pattern.remove_prefix(1);
  if (first == '?') return true;
  if (first == '\\' && !pattern.empty()) {
    const bool same = pattern.front() == c;
    pattern.remove_prefix(1);
    return same;
  }
  const size_t close = first == '[' ? pattern.find(']', 1) : std::string_view::npos;
  if (close == std::string_view::npos) return first == c;
  std::string_view set = pattern.substr(0, close);
  pattern.remove_prefix(close + 1);
  const bool inverted = set.front() == '^' || set.front() == '!';
  if (inverted) set.remove_prefix(1);
  bool in_set = false;
  while (!set.empty()) {
    const bool range = set.size() >= 3 && set[1] == '-';
    in_set = in_set || (range ? set[0] <= c && c <= set[2] : set[0] == c);
    set.remove_prefix(range ? 3 : 1);
  }
  return in_set != inverted;
}

// Whether `name` is one that a shell's `pattern` stands for.
bool matches(std::string_view pattern, std::string_view name) {
  std::string_view star_pattern;  // after the last star, and where it was tried
  std::string_view star_name;
  bool star = false;
  while (true) {
    if (!pattern.empty() && pattern.front() == '*') {
      pattern.remove_prefix(1);
      star = true;
      star_pattern = pattern;
      star_name = name;
      continue;
    }
    if (name.empty() && pattern.empty()) return true;
    if (!name.empty() && !pattern.empty() && match_one(pattern, name.front())) {
      name.remove_prefix(1);
      continue;
    }
    if (!star || star_name.empty()) return false;
    star_name.remove_prefix(1);
    pattern = star_pattern;
    name = star_name;
  }
}

Result<std::vector<std::string>> matching_files(FileSystem& fs, const std::string& pattern) {
  std::vector<std::string> paths;
  const size_t slash = pattern.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : pattern.substr(0, slash + 1);
  const std::string_view last = std::string_view(pattern).substr(folder.size());
  if (last.find_first_of("*?[\\") == std::string_view::npos) {
    Result<FileInfo> info = fs.info(pattern);
    if (info.ok() && !info->is_directory) paths.push_back(pattern);
    return paths;
  }
  Result<std::vector<std::string>> names = fs.list(directory_of(pattern));
  if (!names.ok()) return names.status().code() == Code::kNotFound ? paths : std::move(names);
  for (const std::string& name : *names) {
    if (matches(last, name)) paths.push_back(str_cat(folder, name));
  }
  return paths;
}

// How many elements the typed field for `dtype` has.
int64_t num_values(const tensorflow::TensorProto& proto, DType dtype) {
  switch (dtype) {
    case DType::kFloat:
      return proto.float_val_size();
    case DType::kDouble:
      return proto.double_val_size();
    case DType::kString:
      return proto.string_val_size();
    case DType::kComplex64:
      return proto.scomplex_val_size() / 2;
    case DType::kComplex128:
      return proto.dcomplex_val_size() / 2;
    case DType::kInt64:
      return proto.int64_val_size();
    case DType::kBool:
      return proto.bool_val_size();
    case DType::kHalf:
    case DType::kBFloat16:
      return proto.half_val_size();
    case DType::kUInt32:
      return proto.uint32_val_size();
    case DType::kUInt64:
      return proto.uint64_val_size();
    default:
      return proto.int_val_size();
  }
}

template <class Proto>
bool parse(std::string_view bytes, Proto& out) {
  return bytes.size() <= INT32_MAX &&
         out.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace

Result<Ref<CheckpointReader>> CheckpointReader::open_v1(FileSystem& fs,
                                                        const std::string& pattern) {
  return V1Reader::open(fs, pattern);
}

Result<Ref<CheckpointReader>> V1Reader::open(FileSystem& fs, const std::string& pattern) {
  MR_TRY_ASSIGN(const std::vector<std::string> paths, matching_files(fs, pattern));
  if (paths.empty()) {
    return not_found("Unsuccessful TensorSliceReader constructor: Failed to find any matching ",
                     "files for ", pattern);
  }
  Ref<V1Reader> reader(new V1Reader(pattern));
  std::map<std::string, StoredTensor> found;
  for (const std::string& path : paths) {
    MR_TRY_ASSIGN(std::unique_ptr<TableReader> table, TableReader::open(fs, path));
    MR_TRY(reader->add_table(std::move(table), found));
  }
  std::vector<StoredTensor> tensors;
  for (auto& [name, tensor] : found) {
    std::vector<Place>& places = reader->places_[name];
    for (const Place& place : places) tensor.slices.push_back(place.slice);
    tensors.push_back(std::move(tensor));
  }
  reader->set_tensors(std::move(tensors));
  return Ref<CheckpointReader>(std::move(reader));
}

Status V1Reader::add_table(std::unique_ptr<TableReader> table,
                           std::map<std::string, StoredTensor>& found) {
  const auto damaged = [&](std::string_view what) {
    return data_loss("'", table->path(), "' is no checkpoint of version 1, or damaged: ", what);
  };
  Result<std::string> first = table->find("");
  if (first.status().code() == Code::kNotFound) return damaged("it has no list of tensors");
  if (!first.ok()) return first.status();
  tensorflow::SavedTensorSlices message;
  if (!parse(*first, message)) return damaged("its list of tensors is no SavedTensorSlices");
  if (message.meta().versions().min_consumer() > 1) {
    return unimplemented("'", table->path(), "' asks for a reader of version ",
                         message.meta().versions().min_consumer());
  }
  for (const tensorflow::SavedSliceMeta& meta : message.meta().tensor()) {
    const auto dtype = static_cast<DType>(meta.type());
    Result<PartialShape> partial = shape_from_proto(meta.shape());
    Result<Shape> shape = partial.ok() ? partial->to_shape() : Result<Shape>(partial.status());
    if (!shape.ok()) return damaged(shape.status().message());
    if (!is_valid(dtype) || is_ref(dtype)) return damaged("a tensor has no dtype");
    const auto [place, fresh] =
        found.try_emplace(meta.name(), StoredTensor{meta.name(), dtype, *shape, {}});
    if (place->second.dtype != dtype || place->second.shape != *shape) {
      return damaged(str_cat("other files have another tensor '", meta.name(), "'"));
    }
    for (const tensorflow::TensorSliceProto& proto : meta.slice()) {
      Result<TensorSlice> slice = TensorSlice::from_proto(proto);
      const Status fits = slice.ok() ? slice->within(*shape).status() : slice.status();
      if (!fits.ok()) return damaged(fits.message());
      places_[meta.name()].push_back({tables_.size(), std::move(*slice)});
    }
  }
  tables_.push_back(std::move(table));
  return ok_status();
}

std::vector<std::string> V1Reader::files() const {
  std::vector<std::string> files;
  for (const std::unique_ptr<TableReader>& table : tables_) files.push_back(table->path());
  return files;
}

// The elements are within messages: whoever says that there are many must have sent them.
Status V1Reader::check_present(const StoredTensor& tensor, const TensorSlice& slice) const {
  MR_TRY_ASSIGN(const TensorSlice box, slice.within(tensor.shape));
  if (tensor.slices.empty() && tensor.shape.num_elements() > 0) {
    return data_loss("'", prefix(), "' has no elements of '", tensor.name, "'");
  }
  MR_TRY_ASSIGN(const Shape wanted, box.shape());
  MR_TRY(pieces_of(tensor, box).status());
  uint64_t bytes = 0;
  for (const std::unique_ptr<TableReader>& table : tables_) bytes += table->bytes();
  constexpr uint64_t kMostPerByte = 64;  // compressed
  if (static_cast<uint64_t>(wanted.num_elements()) / kMostPerByte > bytes) {
    return data_loss("'", prefix(), "' has ", bytes, " bytes, too few for '", tensor.name, "' ",
                     wanted);
  }
  return ok_status();
}

Result<Tensor> V1Reader::parse_piece(const StoredTensor& tensor, const SlicePiece& piece,
                                     std::string_view value) const {
  tensorflow::SavedTensorSlices message;
  if (!parse(value, message)) return damaged(tensor, piece, "is no SavedTensorSlices");
  MR_TRY_ASSIGN(const Shape shape, piece.box.shape());
  tensorflow::TensorProto& data = *message.mutable_data()->mutable_data();
  const int64_t count = num_values(data, tensor.dtype);
  if (data.tensor_content().empty() && count != shape.num_elements()) {
    return damaged(tensor, piece, str_cat("has ", count, " elements, expected ", shape));
  }
  data.set_dtype(static_cast<tensorflow::DataType>(tensor.dtype));
  shape_to_proto(shape, *data.mutable_tensor_shape());
  Result<Tensor> elements = tensor_from_proto(data);
  if (!elements.ok()) return damaged(tensor, piece, elements.status().message());
  return elements;
}

Status V1Reader::damaged(const StoredTensor& tensor, const SlicePiece& piece,
                         std::string_view what) const {
  const Place& place = places_.at(tensor.name)[piece.index];
  return data_loss("'", tables_[place.table]->path(), "' is damaged: the slice '", place.slice,
                   "' of '", tensor.name, "' ", what);
}

Status V1Reader::read(const StoredTensor& tensor, const TensorSlice& slice, Tensor& out) const {
  MR_TRY(check_present(tensor, slice));
  MR_TRY_ASSIGN(const TensorSlice box, slice.within(tensor.shape));
  MR_TRY_ASSIGN(const Shape wanted, box.shape());
  if (out.dtype() != tensor.dtype || out.shape() != wanted) {
    return invalid_argument("tensor '", tensor.name, "' is ", tensor.dtype, wanted,
                            ", to be read into ", out.dtype(), out.shape());
  }
  if (wanted.num_elements() == 0) return ok_status();
  MR_TRY_ASSIGN(const std::vector<SlicePiece> pieces, pieces_of(tensor, box));
  // By table and key, so that each block is read once.
  std::map<size_t, std::map<std::string, const SlicePiece*>> wanted_of;
  for (const SlicePiece& piece : pieces) {
    const Place& place = places_.at(tensor.name)[piece.index];
    wanted_of[place.table].emplace(slice_key(tensor.name, place.slice), &piece);
  }
  for (auto& [table, by_key] : wanted_of) {
    std::vector<std::string> keys;
    std::vector<const SlicePiece*> order;
    for (const auto& [key, piece] : by_key) {
      keys.push_back(key);
      order.push_back(piece);
    }
    const auto copy = [&](size_t number, std::string_view value) -> Status {
      const SlicePiece& piece = *std::exchange(order[number], nullptr);
      MR_TRY_ASSIGN(const Tensor part, parse_piece(tensor, piece, value));
      copy_overlap(part, piece.box, box, out);
      return ok_status();
    };
    MR_TRY(tables_[table]->find_all(keys, copy));
    for (const SlicePiece* piece : order) {
      if (piece != nullptr) return damaged(tensor, *piece, "is missing");
    }
  }
  return ok_status();
}

}  // namespace millrace
