#include <algorithm>
#include <map>
#include <set>

#include "millrace/io/bundle_index.h"
#include "millrace/io/coding.h"
#include "millrace/io/json_reader.h"
#include "millrace/io/safetensors.h"

namespace millrace {
namespace {

constexpr std::string_view kMetadata = "__metadata__";

Status check(const std::vector<SafetensorsEntry>& entries, const SafetensorsMetadata& metadata) {
  std::set<std::string_view> names;
  for (const SafetensorsEntry& entry : entries) {
    if (!is_utf8(entry.name) || entry.name == kMetadata) {
      return invalid_argument("'", entry.name,
                              "' cannot be the name of a tensor in a safetensors file");
    }
    if (!names.insert(entry.name).second) {
      return invalid_argument("'", entry.name, "' is the name of two tensors");
    }
    if (safetensors_type(entry.dtype).empty()) {
      return unimplemented("a safetensors file cannot hold '", entry.name, "' of ", entry.dtype);
    }
  }
  for (const auto& [name, value] : metadata) {
    if (!is_utf8(name) || !is_utf8(value)) {
      return invalid_argument("metadata must be UTF-8, got '", name, "': '", value, "'");
    }
  }
  return ok_status();
}

// Sorts the entries, large types first, so that all lie as they need it, and gives each its place.
void lay_out(std::vector<SafetensorsEntry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    const size_t x = dtype_size(a.dtype);
    const size_t y = dtype_size(b.dtype);
    return x != y ? x > y : a.name < b.name;
  });
  uint64_t at = 0;
  for (SafetensorsEntry& entry : entries) {
    entry.begin = at;
    at += static_cast<uint64_t>(entry.shape.num_elements()) * dtype_size(entry.dtype);
    entry.end = at;
  }
}

std::string header_of(const std::vector<SafetensorsEntry>& entries,
                      const SafetensorsMetadata& metadata) {
  std::vector<std::string> parts;
  if (!metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [name, value] : metadata) {
      pairs.push_back(str_cat(json_quoted(name), ":", json_quoted(value)));
    }
    parts.push_back(str_cat("\"", kMetadata, "\":{", str_join(pairs, ","), "}"));
  }
  for (const SafetensorsEntry& entry : entries) {
    parts.push_back(str_cat(json_quoted(entry.name), ":{\"dtype\":\"",
                            safetensors_type(entry.dtype), "\",\"shape\":", entry.shape,
                            ",\"data_offsets\":[", entry.begin, ",", entry.end, "]}"));
  }
  std::string header = str_cat("{", str_join(parts, ","), "}");
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(FileSystem& fs, std::string path,
                                     std::vector<SafetensorsEntry> entries)
    : fs_(fs), path_(std::move(path)), aside_(path_aside(path_)), entries_(std::move(entries)) {}

SafetensorsWriter::~SafetensorsWriter() {
  if (!file_) return;
  file_ = {};
  (void)fs_.remove(aside_).ok();
}

Result<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::create(
    FileSystem& fs, const std::string& path, std::vector<SafetensorsEntry> entries,
    const SafetensorsMetadata& metadata) {
  MR_TRY(check(entries, metadata));
  lay_out(entries);
  MR_TRY(fs.mkdir_all(directory_of(path)));
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter(fs, path, std::move(entries)));
  MR_TRY_ASSIGN(writer->file_, fs.open_writable(writer->aside_));
  const std::string header = header_of(writer->entries_, metadata);
  std::string size;
  put_fixed64(size, header.size());
  MR_TRY(writer->file_->append(size));
  MR_TRY(writer->file_->append(header));
  return writer;
}

Status SafetensorsWriter::add(const Tensor& tensor) {
  if (!file_ || added_ == entries_.size()) {
    return failed_precondition("all tensors of '", path_, "' are written");
  }
  const SafetensorsEntry& entry = entries_[added_];
  if (tensor.dtype() != entry.dtype || tensor.shape() != entry.shape) {
    return invalid_argument("'", entry.name, "' was to be ", entry.dtype, " ", entry.shape,
                            ", got ", tensor.dtype(), " ", tensor.shape());
  }
  ++added_;
  return file_->append({static_cast<const char*>(tensor.raw()), tensor.bytes()});
}

Status SafetensorsWriter::finish() {
  if (!file_ || added_ != entries_.size()) {
    return failed_precondition(added_, " of ", entries_.size(), " tensors of '", path_,
                               "' are written, or it is finished");
  }
  MR_TRY(file_->sync());
  MR_TRY(file_->close());
  MR_TRY(fs_.rename(aside_, path_));
  file_ = {};
  return fs_.sync_directory(directory_of(path_));
}

Status write_safetensors(FileSystem& fs, const std::string& path,
                         const std::vector<std::pair<std::string, Tensor>>& tensors,
                         const SafetensorsMetadata& metadata) {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string_view, const Tensor*> by_name;
  for (const auto& [name, tensor] : tensors) {
    entries.push_back({.name = name, .dtype = tensor.dtype(), .shape = tensor.shape()});
    by_name[name] = &tensor;
  }
  MR_TRY_ASSIGN(const auto writer,
                SafetensorsWriter::create(fs, path, std::move(entries), metadata));
  for (const SafetensorsEntry& entry : writer->entries()) {
    MR_TRY(writer->add(*by_name.at(entry.name)));
  }
  return writer->finish();
}

}  // namespace millrace
