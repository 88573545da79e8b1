#include "millrace/io/parsed_values.h"

#include <algorithm>
#include <cstring>

namespace millrace {

Status check_feature_type(std::string_view key, DType dtype) {
  if (dtype == DType::kFloat || dtype == DType::kInt64 || dtype == DType::kString) {
    return ok_status();
  }
  return invalid_argument("feature '", key, "' must be float, int64 or string, got ", dtype);
}

bool read_map_entry(WireReader& map, std::string_view& key, std::string_view& value) {
  uint32_t tag;
  key = value = {};
  if (!map.tag(tag)) return false;
  if (tag != wire_tag(1, WireType::kBytes)) return map.skip(tag);
  std::string_view bytes;
  if (!map.bytes(bytes)) return false;
  for (WireReader entry(bytes); !entry.done();) {
    if (!entry.tag(tag)) return false;
    const bool whole = tag == wire_tag(1, WireType::kBytes)   ? entry.bytes(key)
                       : tag == wire_tag(2, WireType::kBytes) ? entry.bytes(value)
                                                              : entry.skip(tag);
    if (!whole) return false;
  }
  return true;
}

Status cannot_parse_example(std::string_view name, std::string_view bytes) {
  constexpr size_t kShown = 64;
  return invalid_argument("Name: ", name, ".  Could not parse example input, value: '",
                          bytes.substr(0, kShown), bytes.size() > kShown ? "'..." : "'");
}

std::string type_mismatch(DType got, DType expected) {
  return str_cat("Data types don't match. Expected type: ", expected,
                 "  Feature is: ", feature_type_name(got), "_list");
}

void read_values(const FeatureView& feature, Tensor& out, int64_t to, int64_t n) {
  if (n == 0) return;
  switch (out.dtype()) {
    case DType::kString:
      return feature.read(out.mutable_data<std::string>().data() + to, n);
    case DType::kFloat:
      return feature.read(out.mutable_data<float>().data() + to, n);
    default:
      return feature.read(out.mutable_data<int64_t>().data() + to, n);
  }
}

void copy_values(const Tensor& from, int64_t begin, Tensor& out, int64_t to, int64_t n) {
  if (n == 0) return;
  if (out.dtype() == DType::kString) {
    std::copy_n(from.data<std::string>().data() + begin, n,
                out.mutable_data<std::string>().data() + to);
    return;
  }
  const auto size = static_cast<int64_t>(dtype_size(out.dtype()));
  std::memcpy(static_cast<char*>(out.mutable_raw()) + to * size,
              static_cast<const char*>(from.raw()) + begin * size, static_cast<size_t>(n * size));
}

void fill_values(const Tensor& value, Tensor& out, int64_t to, int64_t n) {
  if (value.valid() && value.num_elements() > 0) {
    for (int64_t i = 0; i < n; ++i) copy_values(value, 0, out, to + i, 1);
  } else if (out.dtype() != DType::kString && n > 0) {  // new strings are empty
    const auto size = static_cast<int64_t>(dtype_size(out.dtype()));
    std::memset(static_cast<char*>(out.mutable_raw()) + to * size, 0,
                static_cast<size_t>(n * size));
  }
}

Result<Tensor> make_splits(std::span<const int64_t> splits, DType dtype, Allocator& allocator) {
  MR_TRY_ASSIGN(Tensor out,
                Tensor::allocate(dtype, Shape{static_cast<int64_t>(splits.size())}, allocator));
  if (dtype == DType::kInt64) {
    std::copy(splits.begin(), splits.end(), out.mutable_data<int64_t>().begin());
    return out;
  }
  if (!splits.empty() && splits.back() > INT32_MAX) {
    return invalid_argument("row splits of ", splits.back(), " values do not fit int32");
  }
  for (size_t i = 0; i < splits.size(); ++i) {
    out.mutable_data<int32_t>()[i] = static_cast<int32_t>(splits[i]);
  }
  return out;
}

void FirstError::note(int64_t element, Status status) {
  MutexLock lock(mu_);
  if (element >= element_) return;
  element_ = element;
  status_ = std::move(status);
}

Status FirstError::take() {
  MutexLock lock(mu_);
  return std::move(status_);
}

}  // namespace millrace
