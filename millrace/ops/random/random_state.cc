#include "millrace/ops/random/random_state.h"

#include <random>

#include "millrace/base/str_cat.h"

namespace millrace {

Result<RandomSource> RandomSource::make(const KernelNode& node) {
  MR_TRY_ASSIGN(const int64_t seed, node.attr<int64_t>("seed"));
  MR_TRY_ASSIGN(const int64_t seed2, node.attr<int64_t>("seed2"));
  return RandomSource(ResourceManager::session_name(node.session_prefix, node.name), seed, seed2);
}

Result<Philox> RandomSource::reserve(const KernelContext& ctx, uint64_t blocks) const {
  const auto make = [&]() -> Result<Ref<RandomState>> {
    uint64_t seed = static_cast<uint64_t>(seed_), seed2 = static_cast<uint64_t>(seed2_);
    if (seed == 0 && seed2 == 0) {
      std::random_device device;
      seed = uint64_t{device()} << 32 | device();
      seed2 = uint64_t{device()} << 32 | device();
    }
    return make_ref<RandomState>(Philox(seed, seed2));
  };
  MR_TRY_ASSIGN(const Ref<RandomState> state, ctx.resources().lookup_or_create<RandomState>(
                                                  ResourceManager::kDefaultContainer, name_, make));
  return state->reserve(blocks);
}

}  // namespace millrace
