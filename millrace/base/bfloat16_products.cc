#include "millrace/base/bfloat16_products.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace millrace {

bool machine_multiplies_bfloat16() {
#if defined(__x86_64__)
  constexpr unsigned kBf16 = 1u << 5;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  // The first subleaf says how many there are.
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || eax < 1) return false;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax & kBf16) != 0;
#else
  return false;
#endif
}

}  // namespace millrace
