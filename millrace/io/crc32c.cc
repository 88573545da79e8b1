#include "millrace/io/crc32c.h"

#include <array>
#include <cstring>

#include "millrace/base/isa.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace millrace {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78U;  // bits reversed

using Table = std::array<uint32_t, 256>;

// tables[k][b]: what byte b followed by k zero bytes does to a checksum of zero.
constexpr std::array<Table, 8> make_tables() {
  std::array<Table, 8> tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][b] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t b = 0; b < 256; ++b) {
      const uint32_t before = tables[k - 1][b];
      tables[k][b] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}
constexpr std::array<Table, 8> kTables = make_tables();

uint32_t step_byte(uint32_t state, char byte) {
  return (state >> 8) ^ kTables[0][(state ^ static_cast<uint8_t>(byte)) & 0xFF];
}

uint64_t load64(const char* p) {
  uint64_t word;
  std::memcpy(&word, p, 8);  // little-endian, as all machines we build for
  return word;
}

// The processor's instruction, for eight bytes and for one.
#if defined(__x86_64__)

#define MR_CRC32C_TARGET [[gnu::target("sse4.2")]]
MR_CRC32C_TARGET inline uint64_t crc_of_word(uint64_t crc, uint64_t word) {
  return __builtin_ia32_crc32di(crc, word);
}
MR_CRC32C_TARGET inline uint32_t crc_of_byte(uint32_t crc, uint8_t byte) {
  return __builtin_ia32_crc32qi(crc, byte);
}
// Every processor with AVX2 has it.
bool has_instruction() { return best_isa() >= Isa::kAvx2; }

#elif defined(__aarch64__)

// Compilers have different names for it, and for the extension that it belongs to.
#define MR_CRC32C_TARGET
inline uint64_t crc_of_word(uint64_t crc, uint64_t word) {
  __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %1" : "+r"(crc) : "r"(word));
  return crc;
}
inline uint32_t crc_of_byte(uint32_t crc, uint8_t byte) {
  __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"(byte));
  return crc;
}
bool has_instruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }

#endif

#if defined(MR_CRC32C_TARGET)

// The instruction takes three cycles and starts each cycle, so three stretches of a block are
// summed side by side. To join them the first is moved past the bytes of the next: multiplied by a
// power of x, which is linear and so one table look-up per byte of the sum.
constexpr std::array<Table, 4> make_shift(size_t zero_bytes) {
  std::array<uint32_t, 32> images{};  // of each bit
  for (size_t bit = 0; bit < 32; ++bit) {
    uint32_t crc = 1U << bit;
    for (size_t i = 0; i < zero_bytes; ++i) crc = (crc >> 8) ^ kTables[0][crc & 0xFF];
    images[bit] = crc;
  }
  std::array<Table, 4> shift{};
  for (size_t k = 0; k < 4; ++k) {
    for (size_t b = 0; b < 256; ++b) {
      for (size_t bit = 0; bit < 8; ++bit) {
        if ((b >> bit & 1) != 0) shift[k][b] ^= images[8 * k + bit];
      }
    }
  }
  return shift;
}

template <size_t kStretch>
uint32_t shift_by(uint32_t crc) {
  static constexpr std::array<Table, 4> kShift = make_shift(kStretch);
  return kShift[0][crc & 0xFF] ^ kShift[1][crc >> 8 & 0xFF] ^ kShift[2][crc >> 16 & 0xFF] ^
         kShift[3][crc >> 24];
}

// Takes whole blocks of three stretches from the front of the data.
template <size_t kStretch>
MR_CRC32C_TARGET uint64_t take_blocks(uint64_t a, const char*& p, size_t& left) {
  for (; left >= 3 * kStretch; left -= 3 * kStretch, p += 3 * kStretch) {
    uint64_t b = 0;
    uint64_t c = 0;
    for (size_t i = 0; i < kStretch; i += 8) {
      a = crc_of_word(a, load64(p + i));
      b = crc_of_word(b, load64(p + kStretch + i));
      c = crc_of_word(c, load64(p + 2 * kStretch + i));
    }
    a = shift_by<kStretch>(static_cast<uint32_t>(a)) ^ b;
    a = shift_by<kStretch>(static_cast<uint32_t>(a)) ^ c;
  }
  return a;
}

MR_CRC32C_TARGET uint32_t extend_by_instruction(uint32_t crc, std::string_view data) {
  const char* p = data.data();
  size_t left = data.size();
  uint64_t a = ~crc;
  a = take_blocks<1024>(a, p, left);
  a = take_blocks<256>(a, p, left);
  a = take_blocks<64>(a, p, left);
  for (; left >= 8; left -= 8, p += 8) a = crc_of_word(a, load64(p));
  auto state = static_cast<uint32_t>(a);
  for (; left > 0; --left, ++p) state = crc_of_byte(state, static_cast<uint8_t>(*p));
  return ~state;
}

#endif

}  // namespace

uint32_t crc32c_extend_portable(uint32_t crc, std::string_view data) {
  const char* p = data.data();
  size_t left = data.size();
  uint32_t state = ~crc;
  for (; left >= 8; left -= 8, p += 8) {
    const uint64_t word = load64(p) ^ state;
    state = 0;
    for (size_t k = 0; k < 8; ++k) state ^= kTables[7 - k][word >> (8 * k) & 0xFF];
  }
  for (; left > 0; --left, ++p) state = step_byte(state, *p);
  return ~state;
}

uint32_t crc32c_extend(uint32_t crc, std::string_view data) {
#if defined(MR_CRC32C_TARGET)
  static const bool by_instruction = has_instruction();
  if (by_instruction) return extend_by_instruction(crc, data);
#endif
  return crc32c_extend_portable(crc, data);
}

}  // namespace millrace
