#include <string>

#include "millrace/kernel/registry.h"
#include "millrace/ops/math/broadcast.h"

// The broadcasting ops of binary_ops.h that also take strings.

namespace millrace {
namespace {

constexpr double kCost = 20;  // nanoseconds per element

struct Join {
  using Output = std::string;
  static std::string eval(const std::string& a, const std::string& b) { return a + b; }
};
struct IsEqual {
  using Output = bool;
  static bool eval(const std::string& a, const std::string& b) { return a == b; }
};
struct IsNotEqual {
  using Output = bool;
  static bool eval(const std::string& a, const std::string& b) { return a != b; }
};

template <class Op>
Status compute(KernelContext& ctx) {
  Result<BroadcastPlan> plan = BroadcastPlan::make({&ctx.input(0).shape(), &ctx.input(1).shape()});
  if (!plan.ok()) {
    if constexpr (std::is_same_v<typename Op::Output, bool>) {
      MR_TRY_ASSIGN(const bool error, ctx.node().attr<bool>("incompatible_shape_error"));
      if (!error) {
        MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape()));
        out->mutable_data<bool>()[0] = std::is_same_v<Op, IsNotEqual>;
        return ok_status();
      }
    }
    return plan.status();
  }
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, plan->shape()));
  const std::string* a = ctx.input(0).data<std::string>().data();
  const std::string* b = ctx.input(1).data<std::string>().data();
  auto* z = out->mutable_data<typename Op::Output>().data();
  const int64_t a_step = plan->step(0), b_step = plan->step(1);
  ctx.parallel_for(plan->shape().num_elements(), kCost, [&](int64_t begin, int64_t end) {
    plan->for_each_run(begin, end, [&](const int64_t* from, int64_t at, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        z[at + i] = Op::eval(a[from[0] + i * a_step], b[from[1] + i * b_step]);
      }
    });
  });
  return ok_status();
}

}  // namespace

void register_string_binary(Registry& registry) {
  registry.kernel<std::string>("Add", DeviceKind::kCpu, compute<Join>);
  registry.kernel<std::string>("Equal", DeviceKind::kCpu, compute<IsEqual>);
  registry.kernel<std::string>("NotEqual", DeviceKind::kCpu, compute<IsNotEqual>);
}

}  // namespace millrace
