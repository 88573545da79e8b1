#pragma once

namespace millrace {

// Whether the processor multiplies pairs of bfloat16 and sums them in float: AVX512_BF16 on x86-64.
// The operating system must save the registers of Isa::kAvx512 besides.
bool machine_multiplies_bfloat16();

}  // namespace millrace
