#include "millrace/base/hash.h"

#include <bit>
#include <cstring>

namespace millrace {
namespace {

constexpr uint64_t kPrime1 = 0x9e3779b185ebca87;
constexpr uint64_t kPrime2 = 0xc2b2ae3d27d4eb4f;
constexpr uint64_t kPrime3 = 0x165667b19e3779f9;
constexpr uint64_t kPrime4 = 0x85ebca77c2b2ae63;
constexpr uint64_t kPrime5 = 0x27d4eb2f165667c5;

// Little-endian, whatever the machine is.
template <class T>
uint64_t load(const unsigned char* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  if constexpr (std::endian::native == std::endian::big) {
    value = sizeof(T) == 8 ? static_cast<T>(__builtin_bswap64(value))
                           : static_cast<T>(__builtin_bswap32(static_cast<uint32_t>(value)));
  }
  return value;
}

uint64_t round(uint64_t lane, uint64_t input) {
  return std::rotl(lane + input * kPrime2, 31) * kPrime1;
}

uint64_t merge(uint64_t hash, uint64_t lane) { return (hash ^ round(0, lane)) * kPrime1 + kPrime4; }

}  // namespace

uint64_t hash_bytes(std::string_view bytes, uint64_t seed) {
  const unsigned char* p = reinterpret_cast<const unsigned char*>(bytes.data());
  size_t left = bytes.size();
  uint64_t hash;
  if (left >= 32) {
    uint64_t a = seed + kPrime1 + kPrime2, b = seed + kPrime2, c = seed, d = seed - kPrime1;
    for (; left >= 32; left -= 32, p += 32) {
      a = round(a, load<uint64_t>(p));
      b = round(b, load<uint64_t>(p + 8));
      c = round(c, load<uint64_t>(p + 16));
      d = round(d, load<uint64_t>(p + 24));
    }
    hash = std::rotl(a, 1) + std::rotl(b, 7) + std::rotl(c, 12) + std::rotl(d, 18);
    hash = merge(merge(merge(merge(hash, a), b), c), d);
  } else {
    hash = seed + kPrime5;
  }
  hash += bytes.size();
  for (; left >= 8; left -= 8, p += 8) {
    hash = std::rotl(hash ^ round(0, load<uint64_t>(p)), 27) * kPrime1 + kPrime4;
  }
  if (left >= 4) {
    hash = std::rotl(hash ^ (load<uint32_t>(p) * kPrime1), 23) * kPrime2 + kPrime3;
    left -= 4;
    p += 4;
  }
  for (; left > 0; --left, ++p) hash = std::rotl(hash ^ (*p * kPrime5), 11) * kPrime1;
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace millrace
