#include "millrace/tensor/variant.h"

#include <map>

#include "millrace/base/mutex.h"

namespace millrace {
namespace {

struct Decoders {
  Mutex mu;
  std::map<std::string, VariantDecoder, std::less<>> by_name MR_GUARDED_BY(mu);
};

Decoders& decoders() {
  static Decoders* const decoders = new Decoders;
  return *decoders;
}

Status no_sums(const VariantObject& object) {
  return unimplemented("variants of type \"", object.type_name(), "\" cannot be added");
}

}  // namespace

Result<Ref<VariantObject>> VariantObject::zeros_like() const { return no_sums(*this); }
Result<Ref<VariantObject>> VariantObject::copy() const { return no_sums(*this); }
Status VariantObject::add(const VariantObject&, ParallelFor) { return no_sums(*this); }

Result<Tensor> zeros_like_variants(const Tensor& tensor) {
  MR_TRY_ASSIGN(Tensor zeros, Tensor::allocate(DType::kVariant, tensor.shape()));
  const std::span<const Variant> from = tensor.data<Variant>();
  const std::span<Variant> to = zeros.mutable_data<Variant>();
  for (size_t i = 0; i < from.size(); ++i) {
    if (!from[i].object) continue;
    MR_TRY_ASSIGN(to[i].object, from[i].object->zeros_like());
  }
  return zeros;
}

Status add_variants(Tensor& sum, const Tensor& other, ParallelFor parallel_for) {
  if (sum.shape() != other.shape()) {
    return invalid_argument("variants to add must have one shape, got ", sum.shape(), " and ",
                            other.shape());
  }
  if (!sum.writable()) {
    MR_TRY_ASSIGN(sum, sum.clone());
  }
  const std::span<const Variant> from = other.data<Variant>();
  const std::span<Variant> to = sum.mutable_data<Variant>();
  for (size_t i = 0; i < from.size(); ++i) {
    if (!from[i].object) continue;
    Ref<VariantObject>& object = to[i].object;
    if (!object) {
      object = from[i].object;
      continue;
    }
    if (object->type_name() != from[i].object->type_name()) {
      return invalid_argument("variants to add must have one type, got \"", object->type_name(),
                              "\" and \"", from[i].object->type_name(), '"');
    }
    if (!object->unique()) {
      MR_TRY_ASSIGN(object, object->copy());
    }
    MR_TRY(object->add(*from[i].object, parallel_for));
  }
  return ok_status();
}

Status register_variant_decoder(std::string_view type_name, VariantDecoder decoder) {
  if (type_name.empty() || decoder == nullptr) {
    return invalid_argument("a variant decoder needs a type name and a function");
  }
  Decoders& all = decoders();
  MutexLock lock(all.mu);
  if (!all.by_name.emplace(type_name, decoder).second) {
    return already_exists("variant type \"", type_name, "\" has a decoder already");
  }
  return ok_status();
}

Result<Variant> decode_variant(std::string_view type_name, std::string_view metadata,
                               std::vector<Tensor> tensors) {
  VariantDecoder decoder = nullptr;
  {
    Decoders& all = decoders();
    MutexLock lock(all.mu);
    const auto found = all.by_name.find(type_name);
    if (found != all.by_name.end()) decoder = found->second;
  }
  if (decoder == nullptr) {
    return not_found("no decoder is registered for variant type \"", type_name, '"');
  }
  MR_TRY_ASSIGN(Ref<VariantObject> object, decoder(metadata, std::move(tensors)));
  return Variant{std::move(object)};
}

}  // namespace millrace
