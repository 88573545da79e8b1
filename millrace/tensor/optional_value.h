#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "millrace/tensor/variant.h"

namespace millrace {

// A value that may be missing: what a branch that was not taken saves for its gradient, and the
// next element of an iterator that may have ended.
class OptionalValue final : public VariantObject {
 public:
  static constexpr std::string_view kTypeName = "tensorflow::data::Optional";

  // Without components for none.
  OptionalValue(bool has_value, std::vector<Tensor> components)
      : has_value_(has_value), components_(std::move(components)) {}

  bool has_value() const { return has_value_; }
  const std::vector<Tensor>& components() const { return components_; }

  std::string_view type_name() const override { return kTypeName; }
  Status encode(std::string& metadata, std::vector<Tensor>& tensors) const override {
    metadata.assign(1, has_value_ ? '1' : '0');
    tensors = components_;
    return ok_status();
  }

 private:
  const bool has_value_;
  const std::vector<Tensor> components_;
};

}  // namespace millrace
