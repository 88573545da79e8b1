#include <algorithm>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/device_engine.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// y = sum(t^2) / 2, so dt = dy t.
Status l2_loss_grad(GradientContext& c) {
  const Expr x = c.input(0);
  c.set(0, (kComplex.contains(x.dtype()) ? call("Conj", {x}) : x) * c.gradient());
  return ok_status();
}

// Blocks of fixed size are summed apart, then in order, so the result does not depend on threads.
// In a block eight running sums let the compiler use vectors.
template <class T>
Status l2_loss(KernelContext& ctx) {
  using Sum = SumType<T>;
  constexpr int64_t kBlock = 8192;
  constexpr int64_t kLanes = 8;
  const Tensor& t = ctx.input(0);
  const int64_t n = t.num_elements(), blocks = (n + kBlock - 1) / kBlock;
  const T* const x = t.data<T>().data();
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape()));
  if (DeviceEngine* const device = device_engine(ctx)) {
    return device->l2_loss(ctx, t.dtype(), x, n, out->mutable_raw());
  }
  MR_TRY_ASSIGN(Tensor sums, ctx.allocate_temp(dtype_of<Sum>, Shape{blocks}));
  Sum* const sum = sums.mutable_data<Sum>().data();
  ctx.parallel_for(blocks, kBlock * 0.3, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      Sum lanes[kLanes] = {};
      int64_t i = b * kBlock;
      const int64_t last = std::min(n, i + kBlock);
      for (; i + kLanes <= last; i += kLanes) {
        for (int64_t l = 0; l < kLanes; ++l) {
          const Sum v = static_cast<Sum>(x[i + l]);
          lanes[l] += v * v;
        }
      }
      for (; i < last; ++i) lanes[0] += static_cast<Sum>(x[i]) * static_cast<Sum>(x[i]);
      sum[b] = {};
      for (Sum lane : lanes) sum[b] += lane;
    }
  });
  Sum total{};
  for (int64_t b = 0; b < blocks; ++b) total += sum[b];
  T& y = out->mutable_data<T>()[0];
  if constexpr (std::is_integral_v<T>) {
    y = static_cast<T>(static_cast<T>(total) / 2);
  } else {
    y = static_cast<T>(total / Sum(2));
  }
  return ok_status();
}

template <class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  (registry.kernel<Ts>("L2Loss", DeviceKind::kCpu, &l2_loss<Ts>), ...);
}

}  // namespace

void register_l2_loss(Registry& registry) {
  registry.add({.name = "L2Loss",
                .doc = "Half the sum of the squares of all elements.",
                .inputs = {{"t", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kNumberTypes}},
                .traits = {.cost = 1000},
                .shape = shape_rules::scalar,
                .gradient = l2_loss_grad});
  register_kernels(registry, NumberTypes());
}

}  // namespace millrace
