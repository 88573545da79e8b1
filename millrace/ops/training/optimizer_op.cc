#include "millrace/ops/training/optimizer_op.h"

#include <algorithm>
#include <string>

namespace millrace {
namespace {

// Elements that are converted to float at a time.
constexpr int64_t kBlock = 256;

}  // namespace

int optimizer_of(std::string_view op) {
  constexpr std::string_view kApplyWord = "Apply";
  const std::string_view name = op.substr(op.find(kApplyWord) + kApplyWord.size());
  int rule = 0;
  while (optimizer_info(rule).name != name) {
    ++rule;
    MR_CHECK(rule < num_optimizers());
  }
  return rule;
}

Result<OptimizerFunction> OptimizerFunction::make(const KernelNode& node) {
  OptimizerFunction f;
  const int rule = optimizer_of(node.op->name);
  f.info_ = &optimizer_info(rule);
  MR_TRY_ASSIGN(f.dtype_, node.attr<DType>("T"));
  MR_TRY_ASSIGN(f.use_locking_, node.attr<bool>("use_locking"));
  if (f.info_->flag.name != nullptr) {
    MR_TRY_ASSIGN(f.flag_, node.attr<bool>(f.info_->flag.name));
  }
  f.loop_ = isa_table<OptimizerLoops>().apply(rule, f.flag_, f.dtype_);
  f.norms_ = isa_table<OptimizerLoops>().norm(rule, f.dtype_);
  f.blocks_ = float_blocks(f.dtype_);
  return f;
}

Status OptimizerFunction::check_range(const Argument& argument, double value) const {
  const char* range = nullptr;
  switch (argument.kind) {
    case ArgumentKind::kPositiveUnlessFlag:
      if (flag_ && value == 0) break;
      [[fallthrough]];
    case ArgumentKind::kPositive:
      if (!(value > 0)) range = "positive";
      break;
    case ArgumentKind::kNonNegative:
      if (!(value >= 0)) range = "zero or positive";
      break;
    case ArgumentKind::kNonPositive:
      if (!(value <= 0)) range = "zero or negative";
      break;
    default:
      break;
  }
  if (range == nullptr) return ok_status();
  return invalid_argument(argument.name, " must be ", range, ", got ", value);
}

Result<OptimizerScalars> OptimizerFunction::read_scalars(const KernelContext& ctx) const {
  OptimizerScalars scalars = {};
  const bool sparse = ctx.num_inputs() > info_->num_slots() + info_->num_arguments();
  int n = 0;
  for (int j = 0; j < info_->num_arguments(); ++j) {
    const Argument& argument = info_->arguments[j];
    if (argument.kind == ArgumentKind::kGradient) continue;
    const bool after_indices = sparse && j > info_->gradient_place();
    const Tensor& scalar = ctx.input(info_->num_slots() + j + (after_indices ? 1 : 0));
    if (scalar.rank() != 0) {
      return invalid_argument(argument.name, " is not a scalar: ", scalar.shape());
    }
    if (argument.kind == ArgumentKind::kStep) {
      scalars.doubles[n] = static_cast<double>(scalar.item<int64_t>());
      scalars.floats[n] = static_cast<float>(scalar.item<int64_t>());
    } else if (dtype_ == DType::kDouble) {
      scalars.doubles[n] = scalar.item<double>();
    } else {
      if (blocks_.to_float != nullptr) {
        blocks_.to_float(scalar.raw(), &scalars.floats[n], 1);
      } else {
        scalars.floats[n] = scalar.item<float>();
      }
      scalars.doubles[n] = static_cast<double>(scalars.floats[n]);
    }
    MR_TRY(check_range(argument, scalars.doubles[n]));
    ++n;
  }
  return scalars;
}

void OptimizerFunction::add_squares(const void* const* slots, const void* grad,
                                    const OptimizerScalars& scalars, int64_t n,
                                    double* squares) const {
  if (blocks_.to_float == nullptr) {
    const void* typed = dtype_ == DType::kDouble ? static_cast<const void*>(scalars.doubles)
                                                 : static_cast<const void*>(scalars.floats);
    return norms_(slots, grad, typed, n, squares);
  }
  alignas(64) float slot_blocks[OptimizerInfo::kMaxSlots][kBlock];
  alignas(64) float grad_block[kBlock];
  const void* blocks[OptimizerInfo::kMaxSlots];
  for (int k = 0; k < info_->num_slots(); ++k) blocks[k] = slot_blocks[k];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t m = std::min(n - i, kBlock);
    for (int k = 0; k < info_->num_slots(); ++k) {
      blocks_.to_float(static_cast<const uint16_t*>(slots[k]) + i, slot_blocks[k], m);
    }
    blocks_.to_float(static_cast<const uint16_t*>(grad) + i, grad_block, m);
    norms_(blocks, grad_block, scalars.floats, m, squares);
  }
}

void OptimizerFunction::set_trust_ratio(double ratio, OptimizerScalars& scalars) const {
  const int place = info_->num_arguments() - 1;
  scalars.doubles[place] = ratio;
  scalars.floats[place] = static_cast<float>(ratio);
}

void OptimizerFunction::operator()(const ApplyRows& rows, void* const* slots, const void* grad,
                                   const OptimizerScalars& scalars) const {
  if (blocks_.to_float != nullptr) {
    through_float(rows, slots, grad, scalars);
  } else if (dtype_ == DType::kDouble) {
    loop_(rows, slots, grad, scalars.doubles);
  } else {
    loop_(rows, slots, grad, scalars.floats);
  }
}

void OptimizerFunction::through_float(const ApplyRows& rows, void* const* slots, const void* grad,
                                      const OptimizerScalars& scalars) const {
  constexpr int64_t kZero = 0;
  alignas(64) float slot_blocks[OptimizerInfo::kMaxSlots][kBlock];
  alignas(64) float grad_block[kBlock];
  void* blocks[OptimizerInfo::kMaxSlots];
  for (int k = 0; k < info_->num_slots(); ++k) blocks[k] = slot_blocks[k];
  for (int64_t r = 0; r < rows.count; ++r) {
    for (int64_t i = 0; i < rows.width; i += kBlock) {
      const int64_t m = std::min(rows.width - i, kBlock);
      const int64_t target = rows.targets[r] * rows.stride + i;
      const int64_t source = rows.sources[r] * rows.stride + i;
      for (int k = 0; k < info_->num_slots(); ++k) {
        blocks_.to_float(static_cast<uint16_t*>(slots[k]) + target, slot_blocks[k], m);
      }
      blocks_.to_float(static_cast<const uint16_t*>(grad) + source, grad_block, m);
      const ApplyRows block = {&kZero, &kZero, 1, m, m};
      loop_(block, blocks, grad_block, scalars.floats);
      for (int k = 0; k < info_->num_slots(); ++k) {
        blocks_.from_float(slot_blocks[k], static_cast<uint16_t*>(slots[k]) + target, m);
      }
    }
  }
}

namespace {

OpSpec make_spec(const OptimizerInfo& info, OptimizerForms form) {
  const bool resource = form == kResourceApply || form == kResourceSparseApply;
  const bool sparse = form == kSparseApply || form == kResourceSparseApply;
  OpSpec spec;
  spec.name = str_cat(resource ? "Resource" : "", sparse ? "SparseApply" : "Apply", info.name);
  spec.doc = info.doc;
  if (sparse) {
    spec.doc =
        str_cat(info.doc,
                "\nDone to the rows of var and its slots that indices name, one after the other.");
  }
  for (int k = 0; k < info.num_slots(); ++k) {
    spec.inputs.push_back({info.slots[k], resource ? "resource" : "ref(T)"});
  }
  for (int j = 0; j < info.num_arguments(); ++j) {
    const Argument& argument = info.arguments[j];
    const bool gradient = argument.kind == ArgumentKind::kGradient;
    spec.inputs.push_back({gradient && sparse ? "grad" : argument.name,
                           argument.kind == ArgumentKind::kStep ? "int64" : "T"});
    if (gradient && sparse) {
      spec.inputs.push_back({"indices", "Tindices", "For each row of grad, the row of var."});
    }
  }
  if (!resource) spec.outputs = {{"out", "ref(T)", "The variable, for what must come after."}};
  spec.types = {{"T", kNumberTypes}};
  if (sparse) spec.types.push_back({"Tindices", kIndexTypes});
  spec.attrs = {
      {"use_locking", "bool = false",
       resource ? "Resource variables are always locked." : "Whether updates exclude each other."}};
  if (info.flag.name != nullptr) {
    spec.attrs.push_back(
        {info.flag.name, info.flag.default_value ? "bool = true" : "bool = false", info.flag.doc});
  }
  spec.traits = {.stateful = true};
  spec.no_gradient = "change variables in place";
  // The elements of a sparse op's output say nothing about its work.
  if (!sparse) spec.traits.cost = info.cost;
  if (!resource) spec.traits.may_alias = 1;
  return spec;
}

}  // namespace

void add_optimizer_ops(Registry& registry, unsigned forms, ShapeRule shape, KernelFactory factory) {
  for (int rule = 0; rule < num_optimizers(); ++rule) {
    const OptimizerInfo& info = optimizer_info(rule);
    for (OptimizerForms form : {kApply, kResourceApply, kSparseApply, kResourceSparseApply}) {
      if ((forms & info.forms & form) == 0) continue;
      OpSpec spec = make_spec(info, form);
      spec.shape = shape;
      KernelDef kernel = {.op = spec.name,
                          .device = DeviceKind::kCpu,
                          .constraints = {{"T", kFloating}},
                          .factory = factory};
      registry.add(spec);
      registry.kernel(kernel);
    }
  }
}

}  // namespace millrace
