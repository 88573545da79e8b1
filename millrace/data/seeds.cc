#include "millrace/data/seeds.h"

#include <charconv>
#include <random>

#include "millrace/data/handles.h"

namespace millrace::data {
namespace {

constexpr std::string_view kTypeName = "SeedGenerator";

Seeds drawn_if_zero(Seeds seeds) {
  if (seeds.seed != 0 || seeds.seed2 != 0) return seeds;
  std::random_device device;
  return {device(), device()};
}

}  // namespace

Result<Seeds> seeds_input(const KernelContext& ctx, int i) {
  Seeds seeds;
  MR_TRY_ASSIGN(seeds.seed, ctx.int_scalar_input(i));
  MR_TRY_ASSIGN(seeds.seed2, ctx.int_scalar_input(i + 1));
  return drawn_if_zero(seeds);
}

Tensor make_seed_generator(const KernelContext& ctx, Seeds seeds) {
  return make_handle(ctx, "", str_cat(seeds.seed, ",", seeds.seed2), kTypeName);
}

Result<Seeds> seed_generator_input(const KernelContext& ctx, int i) {
  MR_TRY_ASSIGN(const ResourceHandle handle, handle_input(ctx, i, kTypeName));
  Seeds seeds;
  const char* at = handle.name.data();
  const char* const end = at + handle.name.size();
  auto parsed = std::from_chars(at, end, seeds.seed);
  if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == ',') {
    parsed = std::from_chars(parsed.ptr + 1, end, seeds.seed2);
  }
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    return invalid_argument("input ", i, " must be a generator of seeds, got '", handle.name, "'");
  }
  return drawn_if_zero(seeds);
}

}  // namespace millrace::data
