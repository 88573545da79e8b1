#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace millrace {

// XXH64 of the bytes. Stable: the same in every process, on every machine and in every version, so
// it may be written to files and compared between tasks. No protection against chosen collisions.
uint64_t hash_bytes(std::string_view bytes, uint64_t seed = 0);
// Only for void pointers: what a number after a char pointer means, size or seed, is not to be
// seen.
template <class Void>
  requires(std::is_void_v<Void>)
uint64_t hash_bytes(Void* data, size_t size) {
  return hash_bytes(std::string_view(static_cast<const char*>(data), size));
}
uint64_t hash_bytes(const char*, uint64_t) = delete;

// Mixes `value` into `hash`; the order of calls matters. Stable like hash_bytes.
constexpr uint64_t hash_combine(uint64_t hash, uint64_t value) {
  uint64_t x = (hash + 0x9e3779b97f4a7c15) * 0xff51afd7ed558ccd + value;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
  return x ^ (x >> 32);
}

}  // namespace millrace
