#pragma once

#include <string_view>

namespace millrace {

// The vector instruction sets there is special code for, each including those before it.
enum class Isa : int {
  kBaseline = 0,  // what the whole build assumes of the machine
  kAvx2 = 1,      // AVX2, FMA and F16C
  kAvx512 = 2,    // AVX-512 F, BW, VL and DQ
};
inline constexpr Isa kIsas[] = {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512};

// "avx2" for Isa::kAvx2.
std::string_view isa_name(Isa isa);

// What the processor and the operating system support; kBaseline where it is not x86-64.
Isa machine_isa();

// `machine`, lowered to the set named `wanted`. A set above `machine` changes nothing; an empty
// name neither; an unknown one is logged as a warning and changes nothing.
Isa lower_isa(Isa machine, std::string_view wanted);

// The set to use: machine_isa() lowered by MILLRACE_ISA=baseline|avx2|avx512. Decided once.
Isa best_isa();

}  // namespace millrace
