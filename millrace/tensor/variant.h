#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// An object that an element of a variant tensor can hold. Immutable while shared: whoever holds the
// only reference may change it in place.
class VariantObject : public RefCounted {
 public:
  // The name under which decode() finds the type again.
  virtual std::string_view type_name() const = 0;
  // Writes the object as plain bytes and tensors; UNIMPLEMENTED when the type cannot leave the
  // process.
  virtual Status encode(std::string& metadata, std::vector<Tensor>& tensors) const = 0;
};

// A value of any registered type, or nothing.
struct Variant {
  Ref<VariantObject> object;
};

template <>
inline constexpr DType dtype_of<Variant> = DType::kVariant;

// Makes an object from what encode() wrote.
using VariantDecoder = Result<Ref<VariantObject>> (*)(std::string_view metadata,
                                                      std::vector<Tensor> tensors);
// Registers the decoder of a type; ALREADY_EXISTS for a second one. Thread-safe.
Status register_variant_decoder(std::string_view type_name, VariantDecoder decoder);
// NOT_FOUND with the type's name when no decoder is registered.
Result<Variant> decode_variant(std::string_view type_name, std::string_view metadata,
                               std::vector<Tensor> tensors);

}  // namespace millrace
