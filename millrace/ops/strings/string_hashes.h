#pragma once

#include <cstdint>
#include <string_view>

// Hashes whose values programs and files rely on. Each gives the same number on every machine.

namespace millrace {

// FarmHash's Fingerprint64.
uint64_t farm_fingerprint64(std::string_view bytes);
// MurmurHash64A.
uint64_t murmur_hash64(std::string_view bytes, uint64_t seed);
// SipHash-2-4.
uint64_t sip_hash(std::string_view bytes, uint64_t key0, uint64_t key1);

}  // namespace millrace
