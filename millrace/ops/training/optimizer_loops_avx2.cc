#include "millrace/ops/training/optimizer_rules.h"

namespace millrace {

ApplyLoop apply_loop_avx2(int rule, bool flag, DType dtype) {
  return pick_apply_loop(rule, flag, dtype, OptimizerRules());
}

NormLoop norm_loop_avx2(int rule, DType dtype) {
  return pick_norm_loop(rule, dtype, OptimizerRules());
}

}  // namespace millrace
