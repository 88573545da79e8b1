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
  if (bytes.empty()) return 0;
  if (static_cast<signed char>(bytes.back()) < 0) return -1;
  constexpr uint64_t kHighBits = 0x8080808080808080ULL;
  const char* at = bytes.data();
  int64_t continued = 0;  // bytes that do not end a number
  bool long_runs = false;
  for (size_t left = bytes.size(); left > 0;) {
    const size_t taken = std::min<size_t>(left, 8);
    uint64_t word = 0;
    std::memcpy(&word, at, taken);
    word &= kHighBits;
    continued += static_cast<int64_t>((word >> 7) * 0x0101010101010101ULL >> 56);
    // A run of ten such bytes has five or more in one of the words.
    long_runs = long_runs || (word & word << 8 & word << 16 & word << 24 & word << 32) != 0;
    at += taken;
    left -= taken;
  }
  // A number has at most ten bytes.
  if (long_runs) {
    int run = 0;
    for (const char c : bytes) {
      run = static_cast<signed char>(c) < 0 ? run + 1 : 0;
      if (run >= 10) return -1;
    }
  }
  return static_cast<int64_t>(bytes.size()) - continued;
}

// The values in one field, packed numbers or a string; -1 for what is none.
int64_t count_packed(DType dtype, std::string_view bytes) {
  if (dtype == DType::kString) return 1;
  if (dtype == DType::kInt64) return count_varints(bytes);
  return bytes.size() % sizeof(float) == 0 ? static_cast<int64_t>(bytes.size() / sizeof(float))
                                           : -1;
}

// Writes the values of one field, `n` at most, and counts them down.
void read_packed(std::string_view bytes, std::string*& out, int64_t& n) {
  if (n-- > 0) out++->assign(bytes);
}

void read_packed(std::string_view bytes, float*& out, int64_t& n) {
  const int64_t count = std::min(n, static_cast<int64_t>(bytes.size() / sizeof(float)));
  if (count <= 0) return;
  std::memcpy(out, bytes.data(), static_cast<size_t>(count) * sizeof(float));
  out += count;
  n -= count;
}

void read_packed(std::string_view bytes, int64_t*& out, int64_t& n) {
  uint64_t number;
  for (WireReader numbers(bytes); n > 0 && !numbers.done() && numbers.varint(number); --n) {
    *out++ = static_cast<int64_t>(number);
  }
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

bool FeatureView::parse_plain(std::string_view message) {
  WireReader feature(message);
  uint32_t tag, field;
  std::string_view list;
  if (!feature.tag(tag) || !feature.bytes(list) || !feature.done()) return false;
  WireReader values(list);
  if (!values.tag(field) || field != kPacked || !values.bytes(bytes_) || !values.done()) {
    return false;
  }
  dtype_ = kind_of(tag);
  return dtype_ != DType::kInvalid;
}

bool FeatureView::parse(std::string_view message) {
  plain_ = parse_plain(message);
  if (plain_) return true;
  dtype_ = DType::kInvalid;
  bytes_ = {};
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
      bytes_ = here;
    }
  }
  return true;
}

int64_t FeatureView::count() const {
  if (plain_) return count_packed(dtype_, bytes_);
  int64_t count = 0;
  const bool whole = for_each_value(bytes_, [&](uint32_t tag, WireReader& values) {
    std::string_view bytes;
    uint64_t number;
    if (tag == kPacked) {
      if (!values.bytes(bytes)) return false;
      const int64_t more = count_packed(dtype_, bytes);
      count += more;
      return more >= 0;
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
  if (plain_) return read_packed(bytes_, out, n);
  for_each_value(bytes_, [&](uint32_t tag, WireReader& values) {
    std::string_view bytes;
    if (tag != kPacked) return values.skip(tag);
    if (!values.bytes(bytes)) return false;
    read_packed(bytes, out, n);
    return true;
  });
}

void FeatureView::read(float* out, int64_t n) const {
  if (plain_) return read_packed(bytes_, out, n);
  for_each_value(bytes_, [&](uint32_t tag, WireReader& values) {
    std::string_view bytes;
    if (tag == kPacked) {
      if (!values.bytes(bytes)) return false;
    } else if (tag == wire_tag(1, WireType::kFixed32)) {
      if (!values.fixed32(bytes)) return false;
    } else {
      return values.skip(tag);
    }
    read_packed(bytes, out, n);
    return true;
  });
}

void FeatureView::read(int64_t* out, int64_t n) const {
  if (plain_) return read_packed(bytes_, out, n);
  for_each_value(bytes_, [&](uint32_t tag, WireReader& values) {
    std::string_view bytes;
    uint64_t number;
    if (tag == kPacked) {
      if (!values.bytes(bytes)) return false;
      read_packed(bytes, out, n);
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
