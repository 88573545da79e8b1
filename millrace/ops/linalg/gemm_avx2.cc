#include "millrace/ops/linalg/gemm_kernels.h"

namespace millrace {
namespace gemm_avx2 {
namespace {

constexpr int kVectorBytes = 32;
constexpr int kRows = 6;
#include "millrace/ops/linalg/gemm_kernels.inc.h"

}  // namespace
}  // namespace gemm_avx2

const GemmKernelTable kGemmAvx2 = gemm_avx2::kTable;

}  // namespace millrace
