#include <algorithm>
#include <string>

#include "millrace/base/isa.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/math/elementwise.h"
#include "millrace/ops/state/variable_update.h"
#include "millrace/ops/training/optimizer_rules.h"
#include "millrace/ops/training/register.h"

namespace millrace {

ApplyLoop apply_loop_baseline(int rule, bool flag, DType dtype) {
  return pick_apply_loop(rule, flag, dtype, OptimizerRules());
}

namespace {

ApplyLoop find_apply_loop(int rule, bool flag, DType dtype) {
#if defined(__x86_64__)
  if (best_isa() >= Isa::kAvx512) return apply_loop_avx512(rule, flag, dtype);
  if (best_isa() >= Isa::kAvx2) return apply_loop_avx2(rule, flag, dtype);
#endif
  return apply_loop_baseline(rule, flag, dtype);
}

template <class... Rules>
constexpr const OptimizerInfo* info_of(int rule, RuleList<Rules...>) {
  constexpr const OptimizerInfo* infos[] = {&Rules::info...};
  return infos[rule];
}
template <class... Rules>
constexpr int count_of(RuleList<Rules...>) {
  return sizeof...(Rules);
}
constexpr const OptimizerInfo& rule_info(int rule) { return *info_of(rule, OptimizerRules()); }

constexpr int num_arguments(const OptimizerInfo& info) {
  int n = 0;
  while (n < 10 && info.arguments[n] != nullptr) ++n;
  return n;
}

// Scalars are scalars, everything else has the shape of the variable.
Status apply_shape(ShapeContext& c, const OptimizerInfo& info) {
  const bool resource = c.input_type(0) == DType::kResource;
  PartialShape shape;
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (i >= info.num_slots && std::string_view(info.arguments[i]) != info.gradient) {
      MR_TRY_ASSIGN(PartialShape scalar, c.with_rank(i, 0));
      continue;
    }
    PartialShape operand = c.input(i);
    if (resource && i < info.num_slots) {
      MR_TRY_ASSIGN(operand, variable_shape(c, i, c.input_type(c.num_inputs() - 1)));
    }
    Result<PartialShape> merged = shape.merge(operand);
    if (!merged.ok()) {
      return invalid_argument(info.arguments[i], " must have the shape of var, ", shape, ", got ",
                              operand);
    }
    shape = *merged;
  }
  if (c.num_outputs() > 0) c.set_output(0, std::move(shape));
  return ok_status();
}

template <int kRule>
Status apply_rule_shape(ShapeContext& c) {
  return apply_shape(c, rule_info(kRule));
}

// One pass over variable, slots and gradient. 16-bit types go through blocks of floats.
class Apply : public Kernel {
 public:
  Apply(int rule, bool flag, DType dtype, bool use_locking)
      : info_(rule_info(rule)),
        loop_(find_apply_loop(rule, flag, dtype)),
        blocks_(float_blocks(dtype)),
        dtype_(dtype),
        use_locking_(use_locking) {}

  Status compute(KernelContext& ctx) const override {
    Scalars scalars;
    MR_TRY(read_scalars(ctx, scalars));
    const Tensor& grad = ctx.input(gradient_index());
    VariableUpdate update(ctx, use_locking_);
    MR_TRY(update.open(info_.num_slots, dtype_));
    for (int k = 0; k < info_.num_slots; ++k) {
      if (update.tensor(k).shape() == grad.shape()) continue;
      return invalid_argument(info_.arguments[k], " and ", info_.gradient,
                              " do not have the same shape: ", update.tensor(k).shape(), " ",
                              grad.shape());
    }
    char* slots[kMaxSlots] = {};
    for (int k = 0; k < info_.num_slots; ++k) {
      MR_TRY_ASSIGN(Tensor * tensor, update.writable(k));
      slots[k] = static_cast<char*>(tensor->mutable_raw());
    }
    const char* gradient = static_cast<const char*>(grad.raw());
    const int64_t size = static_cast<int64_t>(dtype_size(dtype_));
    ctx.parallel_for(grad.num_elements(), info_.cost, [&](int64_t begin, int64_t end) {
      void* at[kMaxSlots];
      for (int k = 0; k < info_.num_slots; ++k) at[k] = slots[k] + begin * size;
      run(at, gradient + begin * size, scalars, end - begin);
    });
    update.forward();
    return ok_status();
  }

 private:
  static constexpr int kMaxSlots = VariableUpdate::kMaxVariables;
  static constexpr int64_t kBlock = 256;

  struct Scalars {
    float floats[8];
    double doubles[8];
  };

  int gradient_index() const {
    int i = 0;
    while (std::string_view(info_.arguments[i]) != info_.gradient) ++i;
    return i;
  }

  Status read_scalars(const KernelContext& ctx, Scalars& scalars) const {
    int n = 0;
    for (int i = info_.num_slots; i < ctx.num_inputs(); ++i) {
      if (std::string_view(info_.arguments[i]) == info_.gradient) continue;
      const Tensor& scalar = ctx.input(i);
      if (scalar.rank() != 0) {
        return invalid_argument(info_.arguments[i], " is not a scalar: ", scalar.shape());
      }
      if (dtype_ == DType::kDouble) {
        scalars.doubles[n] = scalar.item<double>();
      } else if (blocks_.to_float != nullptr) {
        blocks_.to_float(scalar.raw(), &scalars.floats[n], 1);
      } else {
        scalars.floats[n] = scalar.item<float>();
      }
      ++n;
    }
    return ok_status();
  }

  void run(void* const* slots, const void* grad, const Scalars& scalars, int64_t n) const {
    if (dtype_ == DType::kDouble) return loop_(slots, grad, scalars.doubles, n);
    if (blocks_.to_float == nullptr) return loop_(slots, grad, scalars.floats, n);
    alignas(64) float slot_blocks[kMaxSlots][kBlock];
    alignas(64) float grad_block[kBlock];
    void* at[kMaxSlots];
    for (int k = 0; k < info_.num_slots; ++k) at[k] = slot_blocks[k];
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = std::min(n - i, kBlock);
      for (int k = 0; k < info_.num_slots; ++k) {
        blocks_.to_float(static_cast<uint16_t*>(slots[k]) + i, slot_blocks[k], m);
      }
      blocks_.to_float(static_cast<const uint16_t*>(grad) + i, grad_block, m);
      loop_(at, grad_block, scalars.floats, m);
      for (int k = 0; k < info_.num_slots; ++k) {
        blocks_.from_float(slot_blocks[k], static_cast<uint16_t*>(slots[k]) + i, m);
      }
    }
  }

  const OptimizerInfo& info_;
  const ApplyLoop loop_;
  const FloatBlocks blocks_;
  const DType dtype_;
  const bool use_locking_;
};

template <int kRule>
Result<std::unique_ptr<Kernel>> make_apply(const KernelNode& node) {
  constexpr const OptimizerInfo& info = rule_info(kRule);
  bool flag = info.flag_default;
  if constexpr (info.flag != nullptr) {
    MR_TRY_ASSIGN(flag, node.attr<bool>(info.flag));
  }
  MR_TRY_ASSIGN(DType dtype, node.attr<DType>("T"));
  MR_TRY_ASSIGN(bool use_locking, node.attr<bool>("use_locking"));
  return std::make_unique<Apply>(kRule, flag, dtype, use_locking);
}

template <int kRule>
void register_rule(Registry& registry, bool resource) {
  constexpr const OptimizerInfo& info = rule_info(kRule);
  OpSpec spec;
  spec.name = str_cat(resource ? "ResourceApply" : "Apply", info.name);
  spec.doc = info.doc;
  for (int i = 0; i < num_arguments(info); ++i) {
    const char* slot_type = resource ? "resource" : "ref(T)";
    spec.inputs.push_back({info.arguments[i], i < info.num_slots ? slot_type : "T"});
  }
  if (!resource) spec.outputs = {{"out", "ref(T)", "The variable, for what must come after."}};
  spec.types = {{"T", kNumberTypes}};
  spec.attrs = {
      {"use_locking", "bool = false",
       resource ? "Resource variables are always locked." : "Whether updates exclude each other."}};
  if (info.flag != nullptr) {
    spec.attrs.push_back(
        {info.flag, info.flag_default ? "bool = true" : "bool = false", info.flag_doc});
  }
  spec.traits = {.stateful = true, .cannot_differentiate = true, .cost = info.cost};
  if (!resource) spec.traits.may_alias = 1;
  spec.shape = apply_rule_shape<kRule>;
  KernelDef kernel = {.op = spec.name,
                      .device = DeviceKind::kCpu,
                      .constraints = {{"T", kFloating}},
                      .factory = &make_apply<kRule>};
  registry.add(std::move(spec));
  registry.kernel(std::move(kernel));
}

template <int... kRules>
void register_rules(Registry& registry, std::integer_sequence<int, kRules...>) {
  (register_rule<kRules>(registry, /*resource=*/false), ...);
  (register_rule<kRules>(registry, /*resource=*/true), ...);
}

}  // namespace

void register_apply(Registry& registry) {
  register_rules(registry, std::make_integer_sequence<int, count_of(OptimizerRules())>());
}

}  // namespace millrace
