#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/function.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Calls body(begin, end) over [0, n), perhaps on several threads: see KernelContext::parallel_for.
using ParallelFor =
    FunctionRef<void(int64_t n, double cost_ns_per_unit, FunctionRef<void(int64_t, int64_t)> body)>;

// An object that an element of a variant tensor can hold. Immutable while shared: whoever holds the
// only reference may change it in place.
class VariantObject : public RefCounted {
 public:
  // The name under which decode() finds the type again.
  virtual std::string_view type_name() const = 0;
  // Writes the object as plain bytes and tensors; UNIMPLEMENTED when the type cannot leave the
  // process.
  virtual Status encode(std::string& metadata, std::vector<Tensor>& tensors) const = 0;

  // What gradients need of a value. UNIMPLEMENTED where the type has no sums.

  // The object of this type that changes nothing when it is added to this one.
  virtual Result<Ref<VariantObject>> zeros_like() const;
  // An equal object with no reference yet but the returned one, which may be changed.
  virtual Result<Ref<VariantObject>> copy() const;
  // Adds `other`, an object of the same type, to this one, which only the caller holds.
  virtual Status add(const VariantObject& other, ParallelFor parallel_for);
};

// A value of any registered type, or nothing.
struct Variant {
  Ref<VariantObject> object;
};

template <>
inline constexpr DType dtype_of<Variant> = DType::kVariant;

// A tensor in the shape of `tensor` (kVariant), of zeros like its elements; nothing stays nothing.
Result<Tensor> zeros_like_variants(const Tensor& tensor);
// Adds the elements of `other` to those of `sum` (kVariant both), in place where `sum` holds the
// only reference to what it changes. Nothing added to a value is that value. INVALID_ARGUMENT for
// different shapes or types of object.
Status add_variants(Tensor& sum, const Tensor& other, ParallelFor parallel_for);

// Makes an object from what encode() wrote.
using VariantDecoder = Result<Ref<VariantObject>> (*)(std::string_view metadata,
                                                      std::vector<Tensor> tensors);
// Registers the decoder of a type; ALREADY_EXISTS for a second one. Thread-safe.
Status register_variant_decoder(std::string_view type_name, VariantDecoder decoder);
// NOT_FOUND with the type's name when no decoder is registered.
Result<Variant> decode_variant(std::string_view type_name, std::string_view metadata,
                               std::vector<Tensor> tensors);

}  // namespace millrace
