#include "millrace/base/isa.h"

#include "millrace/base/env.h"
#include "millrace/base/log.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace millrace {

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return "baseline";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

#if defined(__x86_64__)

Isa machine_isa() {
  const auto has = [](unsigned bits, unsigned wanted) { return (bits & wanted) == wanted; };
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return Isa::kBaseline;
  if (!has(ecx, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C)) return Isa::kBaseline;

  // The operating system must save the registers too: XCR0 says which.
  unsigned xcr0 = 0, xcr0_high = 0;
  __asm__("xgetbv" : "=a"(xcr0), "=d"(xcr0_high) : "c"(0));
  constexpr unsigned kYmmState = 0x06;
  constexpr unsigned kZmmState = 0xe6;
  if (!has(xcr0, kYmmState)) return Isa::kBaseline;

  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return Isa::kBaseline;
  if (!has(ebx, bit_AVX2)) return Isa::kBaseline;
  if (has(ebx, bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ) && has(xcr0, kZmmState)) {
    return Isa::kAvx512;
  }
  return Isa::kAvx2;
}

#else

Isa machine_isa() { return Isa::kBaseline; }

#endif

Isa lower_isa(Isa machine, std::string_view wanted) {
  if (wanted.empty()) return machine;
  for (const Isa isa : kIsas) {
    if (isa_name(isa) == wanted) return isa < machine ? isa : machine;
  }
  MR_LOG(kWarning, "MILLRACE_ISA=", wanted,
         " is ignored: expected baseline, avx2 or avx512; using ", isa_name(machine));
  return machine;
}

Isa best_isa() {
  static const Isa isa = lower_isa(machine_isa(), env_string("MILLRACE_ISA"));
  return isa;
}

}  // namespace millrace
