#include "millrace/ops/training/optimizer_loops.h"

#include "millrace/base/isa.h"
#include "millrace/ops/training/optimizer_rules.h"

namespace millrace {
namespace {

template <class... Rules>
constexpr int count_of(RuleList<Rules...>) {
  return sizeof...(Rules);
}
template <class... Rules>
const OptimizerInfo& info_of(int rule, RuleList<Rules...>) {
  static constexpr const OptimizerInfo* kInfos[] = {&Rules::info...};
  return *kInfos[rule];
}

}  // namespace

int num_optimizers() { return count_of(OptimizerRules()); }

const OptimizerInfo& optimizer_info(int rule) { return info_of(rule, OptimizerRules()); }

ApplyLoop apply_loop_baseline(int rule, bool flag, DType dtype) {
  return pick_apply_loop(rule, flag, dtype, OptimizerRules());
}

NormLoop norm_loop_baseline(int rule, DType dtype) {
  return pick_norm_loop(rule, dtype, OptimizerRules());
}

NormLoop find_norm_loop(int rule, DType dtype) {
#if defined(__x86_64__)
  if (best_isa() >= Isa::kAvx512) return norm_loop_avx512(rule, dtype);
  if (best_isa() >= Isa::kAvx2) return norm_loop_avx2(rule, dtype);
#endif
  return norm_loop_baseline(rule, dtype);
}

ApplyLoop find_apply_loop(int rule, bool flag, DType dtype) {
#if defined(__x86_64__)
  if (best_isa() >= Isa::kAvx512) return apply_loop_avx512(rule, flag, dtype);
  if (best_isa() >= Isa::kAvx2) return apply_loop_avx2(rule, flag, dtype);
#endif
  return apply_loop_baseline(rule, flag, dtype);
}

}  // namespace millrace
