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

}  // namespace

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
