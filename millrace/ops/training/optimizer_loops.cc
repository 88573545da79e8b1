#include "millrace/ops/training/optimizer_loops.h"

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

}  // namespace millrace
