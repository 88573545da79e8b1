#include "millrace/io/feature.h"

#include <algorithm>
#include <cstring>

#include "millrace/io/wire.h"

namespace millrace {
namespace {

constexpr uint32_t kPacked = wire_tag(1, WireType::kBytes);

// The kind that a field of Feature is, kInvalid for others.
DType kind_of(uint32_t tag) {
  switch (tag) {
    case wire_tag(1, WireType::kBytes):
      return DType::kString;
    case wire_tag(2, WireType::kBytes):
      return DType::kFloat;
    case wire_tag(3, WireType::kBytes):
      return DType::kInt64;
    default:
      return DType::kInvalid;
  }
}

// The numbers in packed varints: each ends with a byte below 128.
int64_t count_varints(std::string_view bytes) {
  if (!bytes.empty() && static_cast<signed char>(bytes.back()) < 0) return -1;
  int64_t count = 0;
  for (const char c : bytes) count += static_cast<signed char>(c) >= 0 ? 1 : 0;
  // A number has at most ten bytes.
  if (bytes.size() > static_cast<size_t>(count)) {
    int run = 0;
    for (const char c : bytes) {
      run = static_cast<signed char>(c) < 0 ? run + 1 : 0;
      if (run >= 10) return -1;
    }
  }
  return count;
}

// Calls value(tag, reader) for each field of each list, which takes the field's value and returns
// false for a damaged one.
template <class F>
bool for_each_value(std::string_view fields, F value) {
  WireReader feature(fields);
  uint32_t tag;
  while (!feature.done()) {
    std::string_view list;
    if (!feature.tag(tag)) return false;
    if (kind_of(tag) == DType::kInvalid) {
      if (!feature.skip(tag)) return false;
      continue;
    }
    if (!feature.bytes(list)) return false;
    for (WireReader values(list); !values.done();) {
      if (!values.tag(tag) || !value(tag, values)) return false;
    }
  }
  return true;
}

}  // namespace

bool FeatureView::parse(std::string_view message) {
  dtype_ = DType::kInvalid;
  fields_ = {};
  for (WireReader reader(message); !reader.done();) {
    const std::string_view here = reader.rest();
    uint32_t tag;
    std::string_view list;
    if (!reader.tag(tag)) return false;
    const DType kind = kind_of(tag);
    if (kind == DType::kInvalid) {
      if (!reader.skip(tag)) return false;
      continue;
    }
    if (!reader.bytes(list)) return false;
    if (kind != dtype_) {
      dtype_ = kind;
      fields_ = here;
    }
  }
  return true;
}

int64_t FeatureView::count() const {
  int64_t count = 0;
  const bool whole = for_each_value(fields_, [&](uint32_t tag, WireReader& values) {
    std::string_view bytes;
    uint64_t number;
    if (tag == kPacked) {
      if (!values.bytes(bytes)) return false;
      if (dtype_ == DType::kString) {
        ++count;
      } else if (dtype_ == DType::kFloat) {
        if (bytes.size() % sizeof(float) != 0) return false;
        count += static_cast<int64_t>(bytes.size() / sizeof(float));
      } else {
        const int64_t numbers = count_varints(bytes);
        if (numbers < 0) return false;
        count += numbers;
      }
      return true;
    }
    if (dtype_ == DType::kFloat && tag == wire_tag(1, WireType::kFixed32)) {
      ++count;
      return values.fixed32(bytes);
    }
    if (dtype_ == DType::kInt64 && tag == wire_tag(1, WireType::kVarint)) {
      ++count;
      return values.varint(number);
    }
    return values.skip(tag);
  });
  return whole ? count : -1;
}

void FeatureView::read(std::string* out, int64_t n) const {
  for_each_value(fields_, [&](uint32_t tag, WireReader& values) {
    std::string_view bytes;
    if (tag != kPacked) return values.skip(tag);
    if (!values.bytes(bytes) || n-- <= 0) return false;
    out++->assign(bytes);
    return true;
  });
}

void FeatureView::read(float* out, int64_t n) const {
  for_each_value(fields_, [&](uint32_t tag, WireReader& values) {
    std::string_view bytes;
    if (tag == kPacked) {
      if (!values.bytes(bytes)) return false;
    } else if (tag == wire_tag(1, WireType::kFixed32)) {
      if (!values.fixed32(bytes)) return false;
    } else {
      return values.skip(tag);
    }
    const int64_t count = std::min(n, static_cast<int64_t>(bytes.size() / sizeof(float)));
    if (count == 0) return true;
    std::memcpy(out, bytes.data(), static_cast<size_t>(count) * sizeof(float));
    out += count;
    n -= count;
    return true;
  });
}

void FeatureView::read(int64_t* out, int64_t n) const {
  for_each_value(fields_, [&](uint32_t tag, WireReader& values) {
    std::string_view bytes;
    uint64_t number;
    if (tag == kPacked) {
      if (!values.bytes(bytes)) return false;
      for (WireReader numbers(bytes); !numbers.done() && n > 0; --n) {
        if (!numbers.varint(number)) return false;
        *out++ = static_cast<int64_t>(number);
      }
      return true;
    }
    if (tag != wire_tag(1, WireType::kVarint)) return values.skip(tag);
    if (!values.varint(number) || n-- <= 0) return false;
    *out++ = static_cast<int64_t>(number);
    return true;
  });
}

std::string_view feature_type_name(DType dtype) {
  return dtype == DType::kString ? "bytes" : dtype == DType::kFloat ? "float" : "int64";
}

}  // namespace millrace
