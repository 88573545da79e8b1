#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/math/broadcast.h"
#include "millrace/ops/math/special_functions.h"
#include "millrace/tensor/dispatch.h"

// Derivatives by a of the incomplete gamma function and of values drawn from gamma distributions.

namespace millrace {
namespace {

template <class T, double (*kFunction)(double, double)>
Status broadcast_cpu(KernelContext& ctx) {
  const Tensor &a = ctx.input(0), &x = ctx.input(1);
  MR_TRY_ASSIGN(const BroadcastPlan plan, BroadcastPlan::make({&a.shape(), &x.shape()}));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, plan.shape()));
  const T *as = a.data<T>().data(), *xs = x.data<T>().data();
  T* const to = out->mutable_data<T>().data();
  ctx.parallel_for(out->num_elements(), 500, [&](int64_t begin, int64_t end) {
    plan.for_each_run(begin, end, [&](const int64_t* from, int64_t at, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        const T ai = as[from[0] + i * plan.step(0)], xi = xs[from[1] + i * plan.step(1)];
        to[at + i] = static_cast<T>(kFunction(static_cast<double>(ai), static_cast<double>(xi)));
      }
    });
  });
  return ok_status();
}

template <double (*kFunction)(double, double), class... Ts>
void register_kernels(Registry& registry, const char* op, TypeList<Ts...>) {
  (registry.kernel<Ts>(op, DeviceKind::kCpu, &broadcast_cpu<Ts, kFunction>), ...);
}

}  // namespace

void register_gamma_gradients(Registry& registry) {
  const OpTraits traits{.elementwise = true, .cost = 500};
  const char* no_gradient = "has no second derivative in TensorFlow either";
  registry.add({.name = "IgammaGradA",
                .doc = "The derivative of Igamma by a.",
                .inputs = {{"a", "T"}, {"x", "T"}},
                .outputs = {{"z", "T"}},
                .types = {{"T", kFloating}},
                .traits = traits,
                .shape = shape_rules::broadcast,
                .no_gradient = no_gradient});
  registry.add({.name = "RandomGammaGrad",
                .doc = "The derivative by alpha of a value that RandomGamma drew.",
                .inputs = {{"alpha", "T"}, {"sample", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kFloating}},
                .traits = traits,
                .shape = shape_rules::broadcast,
                .no_gradient = no_gradient});
  register_kernels<lower_gamma_by_a>(registry, "IgammaGradA", FloatingTypes());
  register_kernels<gamma_sample_by_a>(registry, "RandomGammaGrad", FloatingTypes());
}

}  // namespace millrace
