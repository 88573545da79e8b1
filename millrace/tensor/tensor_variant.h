#pragma once

#include <span>
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

// A sparse tensor as three variants: its indices, values and shape.
inline Tensor sparse_in_variants(Tensor indices, Tensor values, Tensor shape) {
  const Variant parts[] = {Variant{make_ref<TensorVariant>(std::move(indices))},
                           Variant{make_ref<TensorVariant>(std::move(values))},
                           Variant{make_ref<TensorVariant>(std::move(shape))}};
  return Tensor::vector(std::span<const Variant>(parts));
}

}  // namespace millrace
