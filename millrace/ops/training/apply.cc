#include <algorithm>
#include <cmath>
#include <span>

#include "millrace/graph/shape_context.h"
#include "millrace/ops/device_engine.h"
#include "millrace/ops/state/variable_update.h"
#include "millrace/ops/training/optimizer_op.h"

namespace millrace {
namespace {

// Scalars are scalars, everything else has the shape of the variable.
Status apply_shape(ShapeContext& c) {
  const OptimizerInfo& info = optimizer_info(optimizer_of(c.op().name));
  const int slots = info.num_slots();
  const bool resource = c.input_type(0) == DType::kResource;
  PartialShape shape;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const bool slot = i < slots;
    if (!slot && i != slots + info.gradient_place()) {
      MR_TRY_ASSIGN(PartialShape scalar, c.with_rank(i, 0));
      continue;
    }
    PartialShape operand = c.input(i);
    if (resource && slot) {
      MR_TRY_ASSIGN(operand, variable_shape(c, i, c.input_type(slots + info.gradient_place())));
    }
    Result<PartialShape> merged = shape.merge(operand);
    if (!merged.ok()) {
      return invalid_argument(slot ? info.slots[i] : info.arguments[i - slots].name,
                              " must have the shape of var, ", shape, ", got ", operand);
    }
    shape = *merged;
  }
  if (c.num_outputs() > 0) c.set_output(0, std::move(shape));
  return ok_status();
}

// One pass over variable, slots and gradient; two where the first must find norms.
class Apply : public Kernel {
 public:
  explicit Apply(const OptimizerFunction& function) : function_(function) {}

  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(OptimizerFunction function, OptimizerFunction::make(node));
    return std::make_unique<Apply>(function);
  }

  Status compute(KernelContext& ctx) const override {
    const OptimizerInfo& info = function_.info();
    const int num_slots = info.num_slots();
    DeviceEngine* const device = device_engine(ctx);
    OptimizerScalars scalars = {};
    if (device == nullptr) {
      MR_TRY_ASSIGN(scalars, function_.read_scalars(ctx));
    }
    const Tensor& grad = ctx.input(function_.gradient_input());
    VariableUpdate update(ctx, function_.use_locking());
    MR_TRY(update.open(num_slots, function_.dtype()));
    for (int k = 0; k < num_slots; ++k) {
      if (update.tensor(k).shape() == grad.shape()) continue;
      return invalid_argument(info.slots[k], " and ", info.arguments[info.gradient_place()].name,
                              " do not have the same shape: ", update.tensor(k).shape(), " ",
                              grad.shape());
    }
    if (info.trust_ratio) {
      MR_TRY_ASSIGN(double ratio, trust_ratio(ctx, update, grad, scalars));
      function_.set_trust_ratio(ratio, scalars);
    }
    char* slots[OptimizerInfo::kMaxSlots] = {};
    for (int k = 0; k < num_slots; ++k) {
      MR_TRY_ASSIGN(Tensor * tensor, update.writable(k));
      slots[k] = static_cast<char*>(tensor->mutable_raw());
    }
    if (device != nullptr) {
      MR_TRY(apply_on_device(ctx, *device, slots, grad));
      update.forward();
      return ok_status();
    }
    const char* gradient = static_cast<const char*>(grad.raw());
    const int64_t size = static_cast<int64_t>(dtype_size(function_.dtype()));
    ctx.parallel_for(grad.num_elements(), info.cost, [&](int64_t begin, int64_t end) {
      constexpr int64_t kZero = 0;
      void* at[OptimizerInfo::kMaxSlots];
      for (int k = 0; k < num_slots; ++k) at[k] = slots[k] + begin * size;
      const ApplyRows range = {&kZero, &kZero, 1, end - begin, end - begin};
      function_(range, at, gradient + begin * size, scalars);
    });
    update.forward();
    return ok_status();
  }

 private:
  // The scalars stay on the device, where nobody checks their range.
  Status apply_on_device(KernelContext& ctx, DeviceEngine& device, char* const* slots,
                         const Tensor& grad) const {
    const OptimizerInfo& info = function_.info();
    std::vector<const void*> scalars;
    for (int j = 0; j < info.num_arguments(); ++j) {
      if (info.arguments[j].kind == ArgumentKind::kGradient) continue;
      const Tensor& scalar = ctx.input(info.num_slots() + j);
      if (scalar.rank() != 0) {
        return invalid_argument(info.arguments[j].name, " is not a scalar: ", scalar.shape());
      }
      scalars.push_back(scalar.raw());
    }
    const std::vector<void*> at(slots, slots + info.num_slots());
    return device.apply(ctx, optimizer_of(ctx.node().op->name), function_.flag(), function_.dtype(),
                        at, grad.raw(), scalars, grad.num_elements());
  }

  // Each block has sums of its own, added up in order: their number depends on the size alone.
  Result<double> trust_ratio(KernelContext& ctx, const VariableUpdate& update, const Tensor& grad,
                             const OptimizerScalars& scalars) const {
    constexpr int64_t kBlock = 4096;
    const int num_slots = function_.info().num_slots();
    const int64_t n = grad.num_elements(), blocks = (n + kBlock - 1) / kBlock;
    const int64_t size = static_cast<int64_t>(dtype_size(function_.dtype()));
    MR_TRY_ASSIGN(Tensor squares, ctx.allocate_temp(DType::kDouble, Shape{blocks, 2}));
    const std::span<double> sums = squares.mutable_data<double>();
    std::fill(sums.begin(), sums.end(), 0.0);
    const double cost = static_cast<double>(function_.info().cost) * kBlock;
    ctx.parallel_for(blocks, cost, [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) {
        const int64_t begin = b * kBlock, count = std::min(n - begin, kBlock);
        const void* at[OptimizerInfo::kMaxSlots];
        for (int k = 0; k < num_slots; ++k) {
          at[k] = static_cast<const char*>(update.tensor(k).raw()) + begin * size;
        }
        function_.add_squares(at, static_cast<const char*>(grad.raw()) + begin * size, scalars,
                              count, &sums[static_cast<size_t>(2 * b)]);
      }
    });
    double var = 0, direction = 0;
    for (size_t i = 0; i < sums.size(); i += 2) {
      var += sums[i];
      direction += sums[i + 1];
    }
    if (var == 0 || direction == 0) return 1.0;
    return std::sqrt(var) / std::sqrt(direction);
  }

  const OptimizerFunction function_;
};

}  // namespace

void register_apply(Registry& registry) {
  add_optimizer_ops(registry, kDenseForms, apply_shape, &Apply::make);
}

}  // namespace millrace
