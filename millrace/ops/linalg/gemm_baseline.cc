#include "millrace/ops/linalg/gemm_kernels.h"

namespace millrace {
namespace gemm_baseline {
namespace {

constexpr int kVectorBytes = 16;
constexpr int kRows = 4;
#include "millrace/ops/linalg/gemm_kernels.inc.h"

}  // namespace
}  // namespace gemm_baseline

const GemmKernelTable kGemmBaseline = gemm_baseline::kTable;

}  // namespace millrace
