#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "millrace/base/mutex.h"
#include "millrace/base/status.h"
#include "millrace/io/feature.h"
#include "millrace/io/wire.h"
#include "millrace/tensor/tensor.h"

// What the parsers of Example and SequenceExample share. Places and counts lie within the tensors:
// the parsers made them so.

namespace millrace {

// INVALID_ARGUMENT unless features can have this type.
Status check_feature_type(std::string_view key, DType dtype);

// Takes one entry of a map from the reader; false for bytes that are none.
bool read_map_entry(WireReader& map, std::string_view& key, std::string_view& value);

// The error for bytes that are no such message.
Status cannot_parse_example(std::string_view name, std::string_view bytes);
// "Data types don't match. Data type: float but expected type: int64".
std::string type_mismatch(DType got, DType expected);

// Writes the `n` values of a feature at place `to` of a tensor of its type.
void read_values(const FeatureView& feature, Tensor& out, int64_t to, int64_t n);
void copy_values(const Tensor& from, int64_t begin, Tensor& out, int64_t to, int64_t n);
// n times the element of `value`, or zeros (empty strings) where it is no tensor or has none.
void fill_values(const Tensor& value, Tensor& out, int64_t to, int64_t n);

// A tensor of these splits; INVALID_ARGUMENT when they do not fit int32.
Result<Tensor> make_splits(std::span<const int64_t> splits, DType dtype, Allocator& allocator);

// The error of the first element among those that threads met.
class FirstError {
 public:
  void note(int64_t element, Status status);
  Status take();

 private:
  Mutex mu_;
  int64_t element_ MR_GUARDED_BY(mu_) = INT64_MAX;
  Status status_ MR_GUARDED_BY(mu_);
};

}  // namespace millrace
