// An op in a library of its own, in one file: definition, shape rule, gradient and kernel.

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/ops/op_library.h"

namespace {

using namespace millrace;

// d(x^3) = 3 x^2 dx
Status cube_gradient(GradientContext& g) {
  g.set(0, g.gradient() * square(g.input(0)) * 3.0);
  return ok_status();
}

template <class T>
Status cube(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  MR_TRY_ASSIGN(Tensor * y, ctx.forward_or_allocate_output({0}, 0, x.shape()));
  auto in = x.data<T>();
  auto out = y->mutable_data<T>();
  ctx.parallel_for(x.num_elements(), 1.0, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      out[i] = in[i] * in[i] * in[i];
    }
  });
  return ok_status();
}

void register_cube(Registry& registry) {
  registry.add({.name = "Cube",
                .doc = "The third power of each element.",
                .inputs = {{"x", "T"}},
                .outputs = {{"y", "T"}},
                .types = {{"T", {DType::kFloat, DType::kDouble}}},
                .traits = {.elementwise = true, .may_alias = 1, .cost = 1},
                .shape = shape_rules::unchanged,
                .gradient = cube_gradient});
  registry.kernel<float>("Cube", DeviceKind::kCpu, cube<float>);
  registry.kernel<double>("Cube", DeviceKind::kCpu, cube<double>);
}

}  // namespace

MILLRACE_OP_LIBRARY(register_cube)
