#include "millrace/ops/linalg/gemm_kernels.h"

namespace millrace {
namespace gemm_avx512 {
namespace {

constexpr int kVectorBytes = 64;
constexpr int kRows = 12;
#include "millrace/ops/linalg/gemm_kernels.inc.h"

}  // namespace
}  // namespace gemm_avx512

const GemmKernelTable kGemmAvx512 = gemm_avx512::kTable;

}  // namespace millrace
