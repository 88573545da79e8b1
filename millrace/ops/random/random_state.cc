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

Result<Philox> stream_of_seed(const KernelContext& ctx, int input) {
  MR_TRY_ASSIGN(const std::vector<int64_t> seed, ctx.int_vector_input(input));
  if (seed.size() != 2) {
    return invalid_argument("seed must have shape [2], not ", ctx.input(input).shape());
  }
  // One block of a fixed stream, so that seeds near to each other have nothing in common.
  const auto low = static_cast<uint64_t>(seed[0]), high = static_cast<uint64_t>(seed[1]);
  const Philox::Block mix = Philox(Philox::Place{0x02461e293ec8f720, low, high}).next();
  return Philox(Philox::Place{mix[0] | uint64_t{mix[1]} << 32, 0, mix[2] | uint64_t{mix[3]} << 32});
}

Result<Philox> stream_of_key(const KernelContext& ctx, int input) {
  constexpr int32_t kPhilox = 1, kAny = 3;
  const Tensor &key = ctx.input(input), &counter = ctx.input(input + 1);
  if (ctx.input(input + 2).rank() != 0) {
    return invalid_argument("alg must have shape [], not ", ctx.input(input + 2).shape());
  }
  MR_TRY_ASSIGN(const int32_t algorithm, ctx.scalar_input<int32_t>(input + 2));
  if (algorithm != kPhilox && algorithm != kAny) {
    return invalid_argument("Unsupported algorithm id: ", algorithm);
  }
  if (key.rank() != 1 || key.num_elements() != 1) {
    return invalid_argument("key must have shape [1], not ", key.shape());
  }
  if (counter.rank() != 1 || counter.num_elements() < 2) {
    return invalid_argument("counter must have shape [2], not ", counter.shape());
  }
  const auto place = counter.data<uint64_t>();
  return Philox(Philox::Place{key.data<uint64_t>()[0], place[0], place[1]});
}

Result<RandomSource> RandomSource::make(const KernelNode& node) {
  const std::vector<ArgDef>& inputs = node.op->inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].name == "seed") return RandomSource(static_cast<int>(i), -1);
    if (inputs[i].name == "key") return RandomSource(-1, static_cast<int>(i));
  }
  MR_TRY_ASSIGN(const int64_t seed, node.attr<int64_t>("seed"));
  MR_TRY_ASSIGN(const int64_t seed2, node.attr<int64_t>("seed2"));
  return RandomSource(ResourceManager::session_name(node.session_prefix, node.name), seed, seed2);
}

Result<Philox> RandomSource::reserve(const KernelContext& ctx, uint64_t blocks) const {
  if (by_seed_ >= 0) return stream_of_seed(ctx, by_seed_);
  if (by_key_ >= 0) return stream_of_key(ctx, by_key_);
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

Status RandomSource::check(const KernelContext& ctx) const {
  return num_inputs() == 0 ? ok_status() : reserve(ctx, 0).status();
}

void register_random_state(Registry& registry) {
  (void)registry;  // it has no ops of its own
  register_op_state(RandomState::kTypeName, &RandomState::decode);
}

}  // namespace millrace
