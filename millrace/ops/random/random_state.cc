#include "millrace/ops/random/random_state.h"

#include <array>
#include <random>

#include "millrace/io/coding.h"
#include "millrace/kernel/registry.h"

namespace millrace {

std::string RandomState::encode() const {
  MutexLock lock(mu_);
  std::string bytes;
  for (const uint64_t word : next_.place()) put_fixed64(bytes, word);
  return bytes;
}

Result<Ref<OpState>> RandomState::decode(std::string_view bytes) {
  Philox::Place place;
  if (bytes.size() != sizeof(place)) {
    return data_loss("expected ", sizeof(place), " bytes, got ", bytes.size());
  }
  for (size_t i = 0; i < place.size(); ++i) {
    place[i] = load_fixed64(bytes.data() + i * sizeof(uint64_t));
  }
  return Ref<OpState>(make_ref<RandomState>(Philox(place)));
}

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

void register_random_state(Registry& registry) {
  (void)registry;  // it has no ops of its own
  register_op_state(RandomState::kTypeName, &RandomState::decode);
}

}  // namespace millrace
