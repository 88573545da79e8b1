#include <algorithm>
#include <set>

#include "millrace/io/coding.h"
#include "millrace/io/json_reader.h"
#include "millrace/io/safetensors.h"
#include "millrace/tensor/element_patterns.h"

namespace millrace {
namespace {

constexpr uint64_t kMostHeaderBytes = 100'000'000;  // as other readers have it
constexpr std::string_view kMetadata = "__metadata__";

struct TypeName {
  DType dtype;
  std::string_view name;
};
constexpr TypeName kTypeNames[] = {{DType::kBool, "BOOL"},
                                   {DType::kUInt8, "U8"},
                                   {DType::kInt8, "I8"},
                                   {DType::kFloat8E5M2, "F8_E5M2"},
                                   {DType::kFloat8E4M3FN, "F8_E4M3"},
                                   {DType::kInt16, "I16"},
                                   {DType::kUInt16, "U16"},
                                   {DType::kHalf, "F16"},
                                   {DType::kBFloat16, "BF16"},
                                   {DType::kInt32, "I32"},
                                   {DType::kUInt32, "U32"},
                                   {DType::kFloat, "F32"},
                                   {DType::kDouble, "F64"},
                                   {DType::kInt64, "I64"},
                                   {DType::kUInt64, "U64"},
                                   {DType::kComplex64, "C64"}};

// The value of "__metadata__": strings by name.
bool read_metadata(JsonReader& json, SafetensorsMetadata& out) {
  if (!json.begin('{')) return false;
  while (json.next('}')) {
    std::string name;
    std::string value;
    if (!json.key(name) || !json.string(value)) return false;
    if (!out.emplace(std::move(name), std::move(value)).second) return false;
  }
  return json.ok();
}

bool read_numbers(JsonReader& json, std::vector<int64_t>& out) {
  if (!json.begin('[')) return false;
  while (json.next(']')) {
    uint64_t number = 0;
    if (!json.number(number) || number > INT64_MAX || out.size() > 1000) return false;
    out.push_back(static_cast<int64_t>(number));
  }
  return json.ok();
}

Status read_entry(JsonReader& json, SafetensorsEntry& entry) {
  const auto wrong = [&entry](std::string_view what) {
    return data_loss("the header's entry of '", entry.name, "' ", what);
  };
  std::string dtype;
  std::vector<int64_t> sizes;
  std::vector<int64_t> offsets;
  std::set<std::string> seen;
  if (!json.begin('{')) return wrong("is no object");
  while (json.next('}')) {
    std::string field;
    if (!json.key(field)) return wrong("is no JSON");
    const bool read = field == "dtype"          ? json.string(dtype)
                      : field == "shape"        ? read_numbers(json, sizes)
                      : field == "data_offsets" ? read_numbers(json, offsets)
                                                : false;
    if (!read) return wrong(str_cat("has a field '", field, "' that is not understood"));
    if (!seen.insert(field).second) return wrong(str_cat("has '", field, "' twice"));
  }
  if (!json.ok() || seen.size() != 3) return wrong("needs dtype, shape and data_offsets");
  entry.dtype = safetensors_dtype(dtype);
  if (entry.dtype == DType::kInvalid) return wrong(str_cat("has an unknown dtype '", dtype, "'"));
  Result<Shape> shape = Shape::make(sizes);
  if (!shape.ok()) return wrong(shape.status().message());
  entry.shape = std::move(*shape);
  if (offsets.size() != 2 || offsets[0] > offsets[1]) return wrong("has no two data_offsets");
  entry.begin = static_cast<uint64_t>(offsets[0]);
  entry.end = static_cast<uint64_t>(offsets[1]);
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(entry.shape.num_elements()),
                             uint64_t{dtype_size(entry.dtype)}, &bytes) ||
      bytes != entry.end - entry.begin) {
    return wrong(str_cat("has ", entry.end - entry.begin, " bytes for ", dtype, entry.shape));
  }
  return ok_status();
}

}  // namespace

std::string_view safetensors_type(DType dtype) {
  for (const TypeName& type : kTypeNames) {
    if (type.dtype == dtype) return type.name;
  }
  return {};
}

DType safetensors_dtype(std::string_view name) {
  for (const TypeName& type : kTypeNames) {
    if (type.name == name) return type.dtype;
  }
  return DType::kInvalid;
}

Result<SafetensorsHeader> SafetensorsHeader::parse(std::string_view text, uint64_t data_bytes) {
  SafetensorsHeader header;
  JsonReader json(text);
  std::set<std::string> names;
  if (!text.starts_with('{') || !json.begin('{')) {
    return data_loss("the header is no JSON object");
  }
  while (json.next('}')) {
    SafetensorsEntry entry;
    if (!json.key(entry.name)) return data_loss("the header is no JSON");
    if (!names.insert(entry.name).second) {
      return data_loss("the header has '", entry.name, "' twice");
    }
    if (entry.name == kMetadata) {
      if (!read_metadata(json, header.metadata)) {
        return data_loss("the header's ", kMetadata, " is not strings by name");
      }
      continue;
    }
    MR_TRY(read_entry(json, entry));
    header.entries.push_back(std::move(entry));
  }
  if (!json.at_end()) return data_loss("the header is no JSON, or something follows it");
  std::sort(header.entries.begin(), header.entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
            });
  uint64_t at = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.begin != at) {
      return data_loss("'", entry.name, "' begins at ", entry.begin, ", expected ", at,
                       ": tensors must lie one after the other");
    }
    at = entry.end;
  }
  if (at != data_bytes) {
    return data_loss("tensors end at ", at, ", the file has ", data_bytes, " bytes of them");
  }
  return header;
}

Result<Ref<SafetensorsReader>> SafetensorsReader::open(FileSystem& fs, const std::string& path) {
  Ref<SafetensorsReader> reader(new SafetensorsReader(path));
  MR_TRY_ASSIGN(reader->file_, fs.open_readable(path));
  MR_TRY_ASSIGN(reader->file_bytes_, reader->file_->size());
  const uint64_t all = reader->file_bytes_;
  const std::string context = str_cat("safetensors file '", path, "'");
  if (all < 8) return data_loss(context, ": it has ", all, " bytes");
  char length[8];
  MR_TRY(reader->read_bytes(0, sizeof(length), length));
  const uint64_t header_bytes = load_fixed64(length);
  if (header_bytes > kMostHeaderBytes || header_bytes > all - 8) {
    return data_loss(context, ": it says a header of ", header_bytes, " bytes, and has ", all);
  }
  std::string json(header_bytes, '\0');
  MR_TRY(reader->read_bytes(8, json.size(), json.data()));
  const uint64_t data = 8 + header_bytes;
  Result<SafetensorsHeader> header = SafetensorsHeader::parse(json, all - data);
  if (!header.ok()) return header.status().with_prefix(context);
  std::vector<StoredTensor> tensors;
  for (SafetensorsEntry& entry : header->entries) {
    reader->places_[entry.name] = {data + entry.begin, entry.end - entry.begin};
    tensors.push_back({std::move(entry.name), entry.dtype, std::move(entry.shape), {}});
  }
  reader->set_tensors(std::move(tensors));
  reader->metadata_ = std::move(header->metadata);
  return reader;
}

Status SafetensorsReader::read_bytes(uint64_t offset, size_t size, void* out) const {
  MR_TRY_ASSIGN(const size_t n, file_->read_at(offset, size, static_cast<char*>(out)));
  if (n == size) return ok_status();
  return data_loss("safetensors file '", prefix(), "' became shorter while it was read");
}

Result<Ref<FileBytes>> SafetensorsReader::mapped() const {
  MutexLock lock(mu_);
  if (!bytes_) {
    MR_TRY_ASSIGN(Ref<FileBytes> bytes, file_->map());
    if (bytes->view().size() < file_bytes_) {
      return data_loss("safetensors file '", prefix(), "' became shorter while it was read");
    }
    bytes_ = std::move(bytes);
  }
  return bytes_;
}

Result<Tensor> SafetensorsReader::view(std::string_view name) const {
  MR_TRY_ASSIGN(const StoredTensor* tensor, get(name));
  if (!any_bytes_are_elements(tensor->dtype)) return read(name);
  MR_TRY_ASSIGN(const Ref<FileBytes> bytes, mapped());
  const Place& place = places_.find(tensor->name)->second;
  const char* const elements = bytes->view().data() + place.offset;
  const size_t part = kComplex.contains(tensor->dtype) ? 2 : 1;
  if (reinterpret_cast<uintptr_t>(elements) % (dtype_size(tensor->dtype) / part) != 0) {
    return read(name);
  }
  return Tensor(tensor->dtype, tensor->shape, Buffer::borrow(elements, place.size, [bytes] {}));
}

Status SafetensorsReader::check_present(const StoredTensor& tensor,
                                        const TensorSlice& slice) const {
  return slice.within(tensor.shape).status();
}

Status SafetensorsReader::read(const StoredTensor& tensor, const TensorSlice& slice,
                               Tensor& out) const {
  MR_TRY_ASSIGN(const TensorSlice box, slice.within(tensor.shape));
  MR_TRY_ASSIGN(const Shape wanted, box.shape());
  if (out.dtype() != tensor.dtype || out.shape() != wanted) {
    return invalid_argument("tensor '", tensor.name, "' is ", tensor.dtype, wanted,
                            ", to be read into ", out.dtype(), out.shape());
  }
  if (wanted.num_elements() == 0) return ok_status();
  // The rows that the slice is of lie side by side.
  MR_TRY_ASSIGN(const TensorSlice all,
                TensorSlice::whole(tensor.shape.rank()).within(tensor.shape));
  std::vector<TensorSlice::Extent> extents = all.extents();
  const Place& place = places_.find(tensor.name)->second;
  uint64_t offset = place.offset;
  if (!extents.empty()) {
    extents[0] = box.extents()[0];
    offset += place.size / static_cast<uint64_t>(tensor.shape.dim(0)) *
              static_cast<uint64_t>(extents[0].start);
  }
  const TensorSlice rows(std::move(extents));
  if (rows == box) {
    MR_TRY(read_bytes(offset, out.bytes(), out.mutable_raw()));
    repair_elements(out);
    return ok_status();
  }
  MR_TRY_ASSIGN(const Shape shape, rows.shape());
  MR_TRY_ASSIGN(Tensor part, Tensor::allocate(tensor.dtype, shape));
  MR_TRY(read_bytes(offset, part.bytes(), part.mutable_raw()));
  repair_elements(part);
  copy_overlap(part, rows, box, out);
  return ok_status();
}

}  // namespace millrace
