#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "millrace/tensor/dtype.h"

namespace millrace {

// One Feature message inside of a serialized Example, read in place: a list of strings, floats or
// int64s. The bytes must outlive it.
class FeatureView {
 public:
  FeatureView() = default;

  // False for bytes that are no Feature. Its values are not looked at.
  bool parse(std::string_view message);

  // kString, kFloat or kInt64; kInvalid for a feature without a kind, which counts as missing.
  DType dtype() const { return dtype_; }
  bool missing() const { return dtype_ == DType::kInvalid; }

  // How many values there are, having looked at all of them; -1 for bytes that are no such list.
  // Numbers may be packed or not.
  int64_t count() const;
  // Writes the values; count() said that there are `n`, and T is of dtype().
  void read(std::string* out, int64_t n) const;
  void read(float* out, int64_t n) const;
  void read(int64_t* out, int64_t n) const;

 private:
  bool parse_plain(std::string_view message);

  DType dtype_ = DType::kInvalid;
  // Nearly all features are one list with one field, packed numbers or a string: `bytes_` is that
  // field then. Otherwise it is the fields of the message from the first one that counts: lists of
  // one kind that follow each other are one list, and one of another kind replaces what came
  // before.
  bool plain_ = false;
  std::string_view bytes_;
};

// "bytes", "float" or "int64": what messages call the values of a list.
std::string_view feature_type_name(DType dtype);

}  // namespace millrace
