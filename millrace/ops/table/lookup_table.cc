#include "millrace/ops/table/lookup_table.h"

#include <algorithm>
#include <cstring>

#include "millrace/base/hash.h"
#include "millrace/ops/queue/handle.h"

namespace millrace {
namespace {

// The bytes of key `row` of `keys`, which has `width` elements in each: a view where it can be one.
std::string_view key_bytes(const Tensor& keys, int64_t row, int64_t width, std::string& scratch) {
  if (keys.dtype() != DType::kString) {
    const auto size = static_cast<size_t>(width) * dtype_size(keys.dtype());
    return {static_cast<const char*>(keys.raw()) + static_cast<size_t>(row) * size, size};
  }
  const auto strings = keys.data<std::string>().subspan(static_cast<size_t>(row * width),
                                                        static_cast<size_t>(width));
  if (width == 1) return strings[0];
  scratch.clear();
  for (const std::string& s : strings) {
    const uint64_t size = s.size();
    scratch.append(reinterpret_cast<const char*>(&size), sizeof size);
    scratch += s;
  }
  return scratch;
}

void write_key(std::string_view bytes, int64_t row, int64_t width, Tensor& out) {
  if (out.dtype() != DType::kString) {
    std::memcpy(static_cast<char*>(out.mutable_raw()) + static_cast<size_t>(row) * bytes.size(),
                bytes.data(), bytes.size());
    return;
  }
  std::string* strings = out.mutable_data<std::string>().data() + row * width;
  if (width == 1) {
    *strings = bytes;
    return;
  }
  for (int64_t i = 0; i < width; ++i) {
    uint64_t size;
    std::memcpy(&size, bytes.data(), sizeof size);
    strings[i] = bytes.substr(sizeof size, size);
    bytes.remove_prefix(sizeof size + size);
  }
}

}  // namespace

size_t LookupTable::Hash::operator()(std::string_view key) const { return hash_bytes(key); }

LookupTable::LookupTable(std::string_view container, std::string_view name, const TableSpec& spec,
                         std::vector<Tensor> reserved)
    : spec_(spec), title_(name), handle_(make_handle_cell(container, name)) {
  std::string scratch;
  for (const Tensor& key : reserved) {
    reserved_.emplace_back(key_bytes(key, 0, spec_.key_shape.num_elements(), scratch));
  }
}

std::string LookupTable::describe() const {
  return str_cat("LookupTable ", title_, " from ", spec_.key_dtype, " to ", spec_.value_dtype);
}

int64_t LookupTable::size() const {
  MutexLock lock(mu_);
  return static_cast<int64_t>(contents_.keys.size());
}

Result<Shape> LookupTable::values_shape(const Shape& keys) const {
  const int rank = keys.rank() - spec_.key_shape.rank();
  bool fits = rank >= 0 && (spec_.kind != TableSpec::Kind::kDense || rank <= 1);
  for (int i = 0; fits && i < spec_.key_shape.rank(); ++i) {
    fits = keys.dim(rank + i) == spec_.key_shape.dim(i);
  }
  if (!fits) {
    return invalid_argument("Expected key shape to end in ", spec_.key_shape, ", got ", keys);
  }
  MR_TRY_ASSIGN(const Shape outer, Shape::make(keys.dims().first(static_cast<size_t>(rank))));
  return outer.concat(spec_.value_shape);
}

Status LookupTable::check_not_reserved(std::string_view key) const {
  for (size_t i = 0; i < reserved_.size(); ++i) {
    if (key != reserved_[i]) continue;
    return invalid_argument("Using the ", i == 0 ? "empty_key" : "deleted_key",
                            " as a table key is not allowed");
  }
  return ok_status();
}

Status LookupTable::find(const Tensor& keys, const Tensor& default_value, Tensor& out) const {
  const int64_t width = spec_.key_shape.num_elements();
  const int64_t size = spec_.value_shape.num_elements();
  if (default_value.shape() != spec_.value_shape) {
    return invalid_argument("Expected shape ", spec_.value_shape, " for default value, got ",
                            default_value.shape());
  }
  const int64_t rows = width == 0 ? 0 : keys.num_elements() / width;
  const size_t bytes = spec_.value_dtype == DType::kString
                           ? 0
                           : static_cast<size_t>(size) * dtype_size(spec_.value_dtype);
  std::string scratch;
  MutexLock lock(mu_);
  if (spec_.kind == TableSpec::Kind::kConstant && !initialized_) {
    return failed_precondition("Table not initialized.");
  }
  for (int64_t r = 0; r < rows; ++r) {
    const std::string_view key = key_bytes(keys, r, width, scratch);
    MR_TRY(check_not_reserved(key));
    const auto found = contents_.index.find(key);
    const bool known = found != contents_.index.end();
    if (spec_.value_dtype == DType::kString) {
      const std::string* from =
          known ? contents_.strings.data() + found->second * static_cast<size_t>(size)
                : default_value.data<std::string>().data();
      std::copy_n(from, size, out.mutable_data<std::string>().data() + r * size);
    } else if (bytes > 0) {
      const char* from = known ? contents_.plain.data() + found->second * bytes
                               : static_cast<const char*>(default_value.raw());
      std::memcpy(static_cast<char*>(out.mutable_raw()) + static_cast<size_t>(r) * bytes, from,
                  bytes);
    }
  }
  return ok_status();
}

Status LookupTable::check_pairs(const Tensor& keys, const Tensor& values) const {
  MR_TRY_ASSIGN(const Shape expected, values_shape(keys.shape()));
  if (values.shape() == expected) return ok_status();
  return invalid_argument("Expected shape ", expected, " for values of keys ", keys.shape(),
                          ", got ", values.shape());
}

bool LookupTable::same_value(const Contents& contents, size_t row, const Tensor& values,
                             int64_t from) const {
  const auto size = static_cast<size_t>(spec_.value_shape.num_elements());
  if (spec_.value_dtype == DType::kString) {
    const std::string* have = contents.strings.data() + row * size;
    return std::equal(have, have + size,
                      values.data<std::string>().data() + static_cast<size_t>(from) * size);
  }
  const size_t bytes = size * dtype_size(spec_.value_dtype);
  return bytes == 0 ||
         std::memcmp(contents.plain.data() + row * bytes,
                     static_cast<const char*>(values.raw()) + static_cast<size_t>(from) * bytes,
                     bytes) == 0;
}

void LookupTable::set_value(Contents& contents, size_t row, const Tensor& values,
                            int64_t from) const {
  const auto size = static_cast<size_t>(spec_.value_shape.num_elements());
  if (spec_.value_dtype == DType::kString) {
    std::copy_n(values.data<std::string>().data() + static_cast<size_t>(from) * size, size,
                contents.strings.data() + row * size);
    return;
  }
  const size_t bytes = size * dtype_size(spec_.value_dtype);
  if (bytes == 0) return;
  std::memcpy(contents.plain.data() + row * bytes,
              static_cast<const char*>(values.raw()) + static_cast<size_t>(from) * bytes, bytes);
}

// Adds pairs that fit. `once`: a key has one value.
Status LookupTable::put(Contents& contents, const Tensor& keys, const Tensor& values,
                        bool once) const {
  const int64_t width = spec_.key_shape.num_elements();
  const auto size = static_cast<size_t>(spec_.value_shape.num_elements());
  const int64_t rows = width == 0 ? 0 : keys.num_elements() / width;
  std::string scratch;
  for (int64_t r = 0; r < rows; ++r) {
    MR_TRY(check_not_reserved(key_bytes(keys, r, width, scratch)));
  }
  for (int64_t r = 0; r < rows; ++r) {
    // A copy: a key of a reference variable may become another between the question and the answer.
    std::string key(key_bytes(keys, r, width, scratch));
    const auto found = contents.index.find(key);
    if (found != contents.index.end()) {
      if (once && !same_value(contents, found->second, values, r)) {
        return invalid_argument("HashTable has different value for same key: key ", r, " of ", rows,
                                " came before with another value");
      }
      set_value(contents, found->second, values, r);
      continue;
    }
    const size_t row = contents.keys.size();
    const auto added = contents.index.emplace(std::move(key), row).first;
    contents.keys.push_back(&added->first);
    if (spec_.value_dtype == DType::kString) {
      contents.strings.resize(contents.strings.size() + size);
    } else {
      contents.plain.resize(contents.plain.size() + size * dtype_size(spec_.value_dtype));
    }
    set_value(contents, row, values, r);
  }
  return ok_status();
}

Status LookupTable::initialize(const Tensor& keys, const Tensor& values) {
  MR_TRY(check_pairs(keys, values));
  MutexLock lock(mu_);
  if (spec_.kind != TableSpec::Kind::kConstant) {
    return invalid_argument("a mutable table is not initialized, it is inserted into");
  }
  if (initialized_) return failed_precondition("Table already initialized.");
  Contents contents;
  MR_TRY(put(contents, keys, values, true));
  contents_ = std::move(contents);
  initialized_ = true;
  return ok_status();
}

Status LookupTable::insert(const Tensor& keys, const Tensor& values) {
  if (spec_.kind == TableSpec::Kind::kConstant) {
    return unimplemented("a HashTable does not change after it was initialized");
  }
  MR_TRY(check_pairs(keys, values));
  MutexLock lock(mu_);
  return put(contents_, keys, values, false);
}

Status LookupTable::import(const Tensor& keys, const Tensor& values) {
  MR_TRY(check_pairs(keys, values));
  Contents contents;
  MR_TRY(put(contents, keys, values, false));
  MutexLock lock(mu_);
  contents_ = std::move(contents);
  initialized_ = true;
  return ok_status();
}

Status LookupTable::remove(const Tensor& keys) {
  if (spec_.kind == TableSpec::Kind::kConstant) {
    return unimplemented("a HashTable does not change after it was initialized");
  }
  MR_TRY(values_shape(keys.shape()).status());
  const int64_t width = spec_.key_shape.num_elements();
  const int64_t rows = width == 0 ? 0 : keys.num_elements() / width;
  const auto size = static_cast<size_t>(spec_.value_shape.num_elements());
  const size_t bytes =
      spec_.value_dtype == DType::kString ? 0 : size * dtype_size(spec_.value_dtype);
  std::string scratch;
  MutexLock lock(mu_);
  for (int64_t r = 0; r < rows; ++r) {
    const auto found = contents_.index.find(key_bytes(keys, r, width, scratch));
    if (found == contents_.index.end()) continue;
    // The last row takes its place.
    const size_t row = found->second, last = contents_.keys.size() - 1;
    if (row != last) {
      contents_.keys[row] = contents_.keys[last];
      contents_.index.find(*contents_.keys[row])->second = row;
      if (bytes > 0) {
        std::memcpy(contents_.plain.data() + row * bytes, contents_.plain.data() + last * bytes,
                    bytes);
      } else if (!contents_.strings.empty()) {
        std::move(contents_.strings.end() - static_cast<ptrdiff_t>(size), contents_.strings.end(),
                  contents_.strings.begin() + static_cast<ptrdiff_t>(row * size));
      }
    }
    contents_.keys.pop_back();
    contents_.plain.resize(last * bytes);
    if (spec_.value_dtype == DType::kString) contents_.strings.resize(last * size);
    contents_.index.erase(found);
  }
  return ok_status();
}

Result<std::pair<Tensor, Tensor>> LookupTable::export_all() const {
  MutexLock lock(mu_);
  const Shape rows{static_cast<int64_t>(contents_.keys.size())};
  MR_TRY_ASSIGN(Shape keys_shape, rows.concat(spec_.key_shape));
  MR_TRY_ASSIGN(Shape values_shape, rows.concat(spec_.value_shape));
  MR_TRY_ASSIGN(Tensor keys, Tensor::allocate(spec_.key_dtype, std::move(keys_shape)));
  MR_TRY_ASSIGN(Tensor values, Tensor::allocate(spec_.value_dtype, std::move(values_shape)));
  for (size_t r = 0; r < contents_.keys.size(); ++r) {
    write_key(*contents_.keys[r], static_cast<int64_t>(r), spec_.key_shape.num_elements(), keys);
  }
  if (spec_.value_dtype == DType::kString) {
    std::copy(contents_.strings.begin(), contents_.strings.end(),
              values.mutable_data<std::string>().begin());
  } else if (!contents_.plain.empty()) {
    std::memcpy(values.mutable_raw(), contents_.plain.data(), contents_.plain.size());
  }
  return std::pair(std::move(keys), std::move(values));
}

}  // namespace millrace
