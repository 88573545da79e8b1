#include <algorithm>
#include <set>

#include "millrace/io/bundle_index.h"
#include "millrace/io/coding.h"
#include "millrace/io/json_reader.h"
#include "millrace/io/safetensors.h"

namespace millrace {
namespace {

constexpr std::string_view kMetadata = "__metadata__";

Status check(const std::vector<std::pair<std::string, Tensor>>& tensors,
             const SafetensorsMetadata& metadata) {
  std::set<std::string_view> names;
  for (const auto& [name, tensor] : tensors) {
    if (!is_utf8(name) || name == kMetadata) {
      return invalid_argument("'", name, "' cannot be the name of a tensor in a safetensors file");
    }
    if (!names.insert(name).second) {
      return invalid_argument("'", name, "' is the name of two tensors");
    }
    if (safetensors_type(tensor.dtype()).empty()) {
      return unimplemented("a safetensors file cannot hold '", name, "' of ", tensor.dtype());
    }
  }
  for (const auto& [name, value] : metadata) {
    if (!is_utf8(name) || !is_utf8(value)) {
      return invalid_argument("metadata must be UTF-8, got '", name, "': '", value, "'");
    }
  }
  return ok_status();
}

using Sorted = std::vector<const std::pair<std::string, Tensor>*>;

// Large types first, so that all lie as they need it.
Sorted in_file_order(const std::vector<std::pair<std::string, Tensor>>& tensors) {
  Sorted sorted;
  for (const auto& tensor : tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
    const size_t x = dtype_size(a->second.dtype());
    const size_t y = dtype_size(b->second.dtype());
    return x != y ? x > y : a->first < b->first;
  });
  return sorted;
}

std::string header_of(const Sorted& tensors, const SafetensorsMetadata& metadata) {
  std::vector<std::string> parts;
  if (!metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [name, value] : metadata) {
      pairs.push_back(str_cat(json_quoted(name), ":", json_quoted(value)));
    }
    parts.push_back(str_cat("\"", kMetadata, "\":{", str_join(pairs, ","), "}"));
  }
  uint64_t at = 0;
  for (const auto* tensor : tensors) {
    const Tensor& t = tensor->second;
    parts.push_back(str_cat(json_quoted(tensor->first), ":{\"dtype\":\"",
                            safetensors_type(t.dtype()), "\",\"shape\":", t.shape(),
                            ",\"data_offsets\":[", at, ",", at + t.bytes(), "]}"));
    at += t.bytes();
  }
  std::string header = str_cat("{", str_join(parts, ","), "}");
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

Status write(FileSystem& fs, const std::string& path, const Sorted& tensors,
             const std::string& header) {
  MR_TRY_ASSIGN(Ref<WritableFile> file, fs.open_writable(path));
  std::string size;
  put_fixed64(size, header.size());
  MR_TRY(file->append(size));
  MR_TRY(file->append(header));
  for (const auto* tensor : tensors) {
    MR_TRY(file->append({static_cast<const char*>(tensor->second.raw()), tensor->second.bytes()}));
  }
  MR_TRY(file->sync());
  return file->close();
}

}  // namespace

Status write_safetensors(FileSystem& fs, const std::string& path,
                         const std::vector<std::pair<std::string, Tensor>>& tensors,
                         const SafetensorsMetadata& metadata) {
  MR_TRY(check(tensors, metadata));
  const Sorted sorted = in_file_order(tensors);
  const std::string directory = directory_of(path);
  MR_TRY(fs.mkdir_all(directory));
  const std::string aside = path_aside(path);
  Status status = write(fs, aside, sorted, header_of(sorted, metadata));
  if (status.ok()) status = fs.rename(aside, path);
  if (!status.ok()) {
    (void)fs.remove(aside).ok();
    return status;
  }
  return fs.sync_directory(directory);
}

}  // namespace millrace
