#include "millrace/ops/strings/string_hashes.h"

#include <bit>
#include <cstring>
#include <utility>

namespace millrace {
namespace {

uint64_t swap_if_big(uint64_t x) {
  return std::endian::native == std::endian::little ? x : __builtin_bswap64(x);
}

uint64_t fetch64(const char* p) {
  uint64_t x;
  std::memcpy(&x, p, sizeof x);
  return swap_if_big(x);
}

uint64_t fetch32(const char* p) {
  uint32_t x;
  std::memcpy(&x, p, sizeof x);
  return std::endian::native == std::endian::little ? x : __builtin_bswap32(x);
}

uint64_t byte_at(std::string_view bytes, size_t i) { return static_cast<unsigned char>(bytes[i]); }

// FarmHash.

constexpr uint64_t kFarm0 = 0xc3a5c85c97cb3127, kFarm1 = 0xb492b66fbe98f273,
                   kFarm2 = 0x9ae16a3b2f90404f;

uint64_t rotate(uint64_t x, int by) { return std::rotr(x, by); }
uint64_t shift_mix(uint64_t x) { return x ^ (x >> 47); }
uint64_t mix_pair(uint64_t u, uint64_t v, uint64_t mul) {
  const uint64_t a = shift_mix((u ^ v) * mul);
  return shift_mix((v ^ a) * mul) * mul;
}

uint64_t farm_up_to_16(std::string_view s) {
  const size_t n = s.size();
  const uint64_t mul = kFarm2 + n * 2;
  const char* p = s.data();
  if (n >= 8) {
    const uint64_t a = fetch64(p) + kFarm2, b = fetch64(p + n - 8);
    return mix_pair(rotate(b, 37) * mul + a, (rotate(a, 25) + b) * mul, mul);
  }
  if (n >= 4) return mix_pair(n + (fetch32(p) << 3), fetch32(p + n - 4), mul);
  if (n == 0) return kFarm2;
  const uint64_t y = byte_at(s, 0) + (byte_at(s, n / 2) << 8);
  const uint64_t z = n + (byte_at(s, n - 1) << 2);
  return shift_mix((y * kFarm2) ^ (z * kFarm0)) * kFarm2;
}

uint64_t farm_up_to_32(std::string_view s) {
  const size_t n = s.size();
  const uint64_t mul = kFarm2 + n * 2;
  const char* p = s.data();
  const uint64_t a = fetch64(p) * kFarm1, b = fetch64(p + 8);
  const uint64_t c = fetch64(p + n - 8) * mul, d = fetch64(p + n - 16) * kFarm2;
  return mix_pair(rotate(a + b, 43) + rotate(c, 30) + d, a + rotate(b + kFarm2, 18) + c, mul);
}

uint64_t farm_up_to_64(std::string_view s) {
  const size_t n = s.size();
  const uint64_t mul = kFarm2 + n * 2;
  const char* p = s.data();
  const uint64_t a = fetch64(p) * kFarm2, b = fetch64(p + 8);
  const uint64_t c = fetch64(p + n - 8) * mul, d = fetch64(p + n - 16) * kFarm2;
  const uint64_t y = rotate(a + b, 43) + rotate(c, 30) + d;
  const uint64_t z = mix_pair(y, a + rotate(b + kFarm2, 18) + c, mul);
  const uint64_t e = fetch64(p + 16) * mul, f = fetch64(p + 24);
  const uint64_t g = (y + fetch64(p + n - 32)) * mul, h = (z + fetch64(p + n - 24)) * mul;
  return mix_pair(rotate(e + f, 43) + rotate(g, 30) + h, e + rotate(f + a, 18) + g, mul);
}

struct Pair {
  uint64_t first = 0, second = 0;
};

Pair mix_32_bytes(const char* p, uint64_t a, uint64_t b) {
  const uint64_t w = fetch64(p), x = fetch64(p + 8), y = fetch64(p + 16), z = fetch64(p + 24);
  a += w;
  b = rotate(b + a + z, 21);
  const uint64_t c = a;
  a += x + y;
  b += rotate(a, 44);
  return {a + z, b + c};
}

// The running state over blocks of 64 bytes.
struct FarmState {
  uint64_t x, y, z;
  Pair v, w;

  void take(const char* p, uint64_t mul, uint64_t times) {
    x = rotate(x + y + v.first + fetch64(p + 8), 37) * mul;
    y = rotate(y + v.second + fetch64(p + 48), 42) * mul;
    x ^= w.second * times;
    y += v.first * times + fetch64(p + 40);
    z = rotate(z + w.first, 33) * mul;
    v = mix_32_bytes(p, v.second * mul, x + w.first);
    w = mix_32_bytes(p + 32, z + w.second, y + fetch64(p + 16));
    std::swap(z, x);
  }
};

// SipHash.

struct SipState {
  uint64_t v0, v1, v2, v3;

  void rounds(int n) {
    for (int i = 0; i < n; ++i) {
      v0 += v1;
      v1 = std::rotl(v1, 13) ^ v0;
      v0 = std::rotl(v0, 32);
      v2 += v3;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1;
      v1 = std::rotl(v1, 17) ^ v2;
      v2 = std::rotl(v2, 32);
    }
  }
  void take(uint64_t word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  }
};

// The last bytes of a string, fewer than eight, as a number.
uint64_t tail_of(std::string_view bytes, size_t from) {
  uint64_t tail = 0;
  for (size_t i = from; i < bytes.size(); ++i) tail |= byte_at(bytes, i) << (8 * (i - from));
  return tail;
}

}  // namespace

uint64_t farm_fingerprint64(std::string_view bytes) {
  const size_t n = bytes.size();
  if (n <= 16) return farm_up_to_16(bytes);
  if (n <= 32) return farm_up_to_32(bytes);
  if (n <= 64) return farm_up_to_64(bytes);
  constexpr uint64_t kSeed = 81;
  FarmState s{.x = kSeed, .y = kSeed * kFarm1 + 113, .z = 0, .v = {}, .w = {}};
  s.z = shift_mix(s.y * kFarm2 + 113) * kFarm2;
  s.x = s.x * kFarm2 + fetch64(bytes.data());
  // The last block ends with the string and may overlap the one before it.
  const size_t blocks = (n - 1) / 64;
  for (size_t i = 0; i < blocks; ++i) s.take(bytes.data() + 64 * i, kFarm1, 1);
  const uint64_t mul = kFarm1 + ((s.z & 0xff) << 1);
  s.w.first += (n - 1) & 63;
  s.v.first += s.w.first;
  s.w.first += s.v.first;
  s.take(bytes.data() + n - 64, mul, 9);
  return mix_pair(mix_pair(s.v.first, s.w.first, mul) + shift_mix(s.y) * kFarm0 + s.z,
                  mix_pair(s.v.second, s.w.second, mul) + s.x, mul);
}

uint64_t murmur_hash64(std::string_view bytes, uint64_t seed) {
  constexpr uint64_t kMul = 0xc6a4a7935bd1e995;
  const auto mix = [](uint64_t x) { return x ^ (x >> 47); };
  uint64_t h = seed ^ (bytes.size() * kMul);
  const size_t whole = bytes.size() / 8 * 8;
  for (size_t i = 0; i < whole; i += 8) {
    h = (h ^ (mix(fetch64(bytes.data() + i) * kMul) * kMul)) * kMul;
  }
  if (whole < bytes.size()) h = (h ^ tail_of(bytes, whole)) * kMul;
  return mix(mix(h) * kMul);
}

uint64_t sip_hash(std::string_view bytes, uint64_t key0, uint64_t key1) {
  SipState s{key0 ^ 0x736f6d6570736575, key1 ^ 0x646f72616e646f6d, key0 ^ 0x6c7967656e657261,
             key1 ^ 0x7465646279746573};
  const size_t whole = bytes.size() / 8 * 8;
  for (size_t i = 0; i < whole; i += 8) s.take(fetch64(bytes.data() + i));
  s.take(tail_of(bytes, whole) | static_cast<uint64_t>(bytes.size()) << 56);
  s.v2 ^= 0xff;
  s.rounds(4);
  return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

}  // namespace millrace
