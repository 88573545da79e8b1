#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "millrace/tensor/variant.h"

namespace millrace {

// A tensor as an element of a variant tensor: how TensorFlow hands on the parts of a sparse tensor.
class TensorVariant final : public VariantObject {
 public:
  static constexpr std::string_view kTypeName = "tensorflow::Tensor";

  explicit TensorVariant(Tensor tensor) : tensor_(std::move(tensor)) {}
  const Tensor& tensor() const { return tensor_; }

  std::string_view type_name() const override { return kTypeName; }
  Status encode(std::string& metadata, std::vector<Tensor>& tensors) const override {
    metadata.clear();
    tensors = {tensor_};
    return ok_status();
  }
  static Result<Ref<VariantObject>> decode(std::string_view, std::vector<Tensor> tensors) {
    if (tensors.size() == 1) {
      return Ref<VariantObject>(make_ref<TensorVariant>(std::move(tensors[0])));
    }
    return invalid_argument("expected one tensor in a variant, got ", tensors.size());
  }

 private:
  const Tensor tensor_;
};

}  // namespace millrace
