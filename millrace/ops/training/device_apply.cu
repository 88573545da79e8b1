#include "millrace/ops/training/device_apply.cuh"
#include "millrace/ops/training/optimizer_rules.h"

namespace millrace {
namespace {

// Scalar arguments, each of the variable's type but for those that `steps` marks: int64.
struct Scalars {
  const void* at[OptimizerInfo::kMaxArguments];
  unsigned steps;
};

template <class Rule, bool kFlag, class T>
struct Apply {
  static constexpr int kSlots = Rule::info.num_slots();
  static constexpr int kScalars = Rule::info.num_arguments();  // one more than there are
  using C = ComputeType<T>;
  Scalars scalars;
  T* slots[kSlots];
  const T* gradient;

  __device__ __forceinline__ void operator()(int64_t i) const {
    C values[kScalars] = {};
    for (int k = 0; k < kScalars - 1; ++k) {
      values[k] = (scalars.steps >> k & 1) != 0
                      ? static_cast<C>(*static_cast<const int64_t*>(scalars.at[k]))
                      : widen(*static_cast<const T*>(scalars.at[k]));
    }
    const typename Rule::template Step<C, kFlag> step(values);
    C v[kSlots];
    for (int k = 0; k < kSlots; ++k) v[k] = widen(slots[k][i]);
    step(widen(gradient[i]), v);
    for (int k = 0; k < kSlots; ++k) slots[k][i] = narrow<T>(v[k]);
  }
};

using LaunchApply = Status (*)(KernelContext&, const Scalars&, std::span<void* const> slots,
                               const void* gradient, int64_t n);

template <class Rule, bool kFlag, class T>
Status launch_apply(KernelContext& ctx, const Scalars& scalars, std::span<void* const> slots,
                    const void* gradient, int64_t n) {
  Apply<Rule, kFlag, T> apply = {};
  apply.scalars = scalars;
  for (size_t k = 0; k < slots.size(); ++k) apply.slots[k] = static_cast<T*>(slots[k]);
  apply.gradient = static_cast<const T*>(gradient);
  return for_each(ctx, n, apply);
}

struct RuleEntry {
  const OptimizerInfo* info;
  LaunchApply (*find)(bool flag, DType dtype);
};

template <class Rule>
LaunchApply find_apply(bool flag, DType dtype) {
  LaunchApply found = nullptr;
  if constexpr (!Rule::info.trust_ratio) {
    const auto consider = [&]<class T>() {
      if (dtype != dtype_of<T>) return;
      found = &launch_apply<Rule, false, T>;
      if constexpr (Rule::info.flag.name != nullptr) {
        if (flag) found = &launch_apply<Rule, true, T>;
      }
    };
    [&]<class... Ts>(TypeList<Ts...>) {
      (consider.template operator()<Ts>(), ...);
    }(FloatingTypes());
  }
  return found;
}

template <class... Rules>
const RuleEntry& entry(int rule, RuleList<Rules...>) {
  static const RuleEntry entries[] = {{&Rules::info, &find_apply<Rules>}...};
  return entries[rule];
}

}  // namespace

bool device_applies(int rule) {
  return entry(rule, OptimizerRules()).find(false, DType::kFloat) != nullptr;
}

Status device_apply(KernelContext& ctx, int rule, bool flag, DType dtype,
                    std::span<void* const> slots, const void* gradient,
                    std::span<const void* const> scalars, int64_t n) {
  const RuleEntry& found = entry(rule, OptimizerRules());
  const LaunchApply apply = found.find(flag, dtype);
  if (apply == nullptr) return unimplemented(found.info->name, " of ", dtype, " on a GPU");
  Scalars all = {};
  int k = 0;
  for (int j = 0; j < found.info->num_arguments(); ++j) {
    const ArgumentKind kind = found.info->arguments[j].kind;
    if (kind == ArgumentKind::kGradient) continue;
    if (kind == ArgumentKind::kStep) all.steps |= 1U << k;
    all.at[k] = scalars[static_cast<size_t>(k)];
    ++k;
  }
  return apply(ctx, all, slots, gradient, n);
}

}  // namespace millrace
