#include "millrace/api/seed.h"

#include "millrace/base/hash.h"

namespace millrace {

Seed derive_seed(int64_t program_seed, std::string_view name) {
  if (program_seed == 0) return {};
  return {program_seed, static_cast<int64_t>(hash_bytes(name) >> 1)};
}

}  // namespace millrace
