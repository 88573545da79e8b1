#include "millrace/ops/math/binary_loops.h"
#include "millrace/ops/math/elementwise.h"
#include "millrace/ops/math/float_blocks.h"
#include "millrace/ops/math/unary_loops.h"

namespace millrace {

UnaryLoop unary_loop_avx2(const char* op, DType dtype) {
  return pick_unary_loop(op, dtype, UnaryOps(), TypeList<float, double>());
}

BinaryLoop binary_loop_avx2(const char* op, DType dtype) {
  using Types = TypeList<float, double, int32_t, int64_t>;
  const BinaryLoop loop = pick_binary_loop(op, dtype, BinaryOps(), Types());
  return loop != nullptr ? loop : pick_binary_loop(op, dtype, GradientOps(), Types());
}

FloatBlocks float_blocks_avx2(DType dtype) {
  switch (dtype) {
    case DType::kHalf:
      return {half_to_float, float_to_half};
    case DType::kBFloat16:
      return {bfloat16_to_float, float_to_bfloat16};
    default:
      return {};
  }
}

}  // namespace millrace
