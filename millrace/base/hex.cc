#include "millrace/base/hex.h"

namespace millrace {

std::string hex_digits(uint64_t value) {
  std::string out(16, '0');
  for (size_t i = 16; i-- > 0; value >>= 4) out[i] = "0123456789abcdef"[value & 15];
  return out;
}

}  // namespace millrace
