#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/math/special_functions.h"
#include "millrace/tensor/dispatch.h"

// Betainc: operands of one shape, or scalars.

namespace millrace {
namespace {

using Types = TypeList<float, double>;

Status betainc_shape(ShapeContext& c) {
  PartialShape out = PartialShape::scalar();
  bool known = true;
  for (int i = 0; i < 3; ++i) {
    if (!c.input(i).rank_known()) {
      known = false;
    } else if (c.input(i).rank() > 0) {
      MR_TRY_ASSIGN(out, out.rank_known() && out.rank() == 0 ? c.input(i) : out.merge(c.input(i)));
    }
  }
  // One that is not known may have a shape where the others are scalars.
  c.set_output(0, known || out.rank() > 0 ? std::move(out) : PartialShape());
  return ok_status();
}

// That of x alone: those of a and b are integrals without a name.
Status betainc_grad(GradientContext& c) {
  const Expr a = c.input(0), b = c.input(1), x = c.input(2);
  const auto log_gamma = [](Expr e) { return call("Lgamma", {e}); };
  const Expr log_beta = log_gamma(a) + log_gamma(b) - log_gamma(a + b);
  const Expr slope = exp((a - 1.0) * log(x) + (b - 1.0) * call("Log1p", {-x}) - log_beta);
  c.set(2, sum_to_shape_of(c.gradient() * slope, x));
  return ok_status();
}

// With a or b of 0, all that is integrated lies at 0 or at 1.
double lower_beta_or_limit(double a, double b, double x) {
  const bool limit = (a == 0 || b == 0) && a + b > 0 && x >= 0 && x <= 1;
  if (!limit) return lower_beta(a, b, x);
  return (a == 0 ? x > 0 : x == 1) ? 1 : 0;
}

template <class T>
Status betainc_cpu(KernelContext& ctx) {
  const Shape* shape = &ctx.input(0).shape();
  for (int i = 1; i < 3; ++i) {
    const Shape& other = ctx.input(i).shape();
    if (other.is_scalar()) continue;
    if (!shape->is_scalar() && !(*shape == other)) {
      return invalid_argument("Shapes of a, b and x are inconsistent: ", ctx.input(0).shape(), ", ",
                              ctx.input(1).shape(), " and ", ctx.input(2).shape(),
                              "; they must be equal, or scalars");
    }
    shape = &other;
  }
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, *shape));
  const T* data[3];
  int64_t steps[3];
  for (int k = 0; k < 3; ++k) {
    data[k] = ctx.input(k).data<T>().data();
    steps[k] = ctx.input(k).shape().is_scalar() ? 0 : 1;
  }
  T* const to = out->mutable_data<T>().data();
  ctx.parallel_for(out->num_elements(), 200, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      to[i] = static_cast<T>(
          lower_beta_or_limit(data[0][i * steps[0]], data[1][i * steps[1]], data[2][i * steps[2]]));
    }
  });
  return ok_status();
}

template <class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  (registry.kernel<Ts>("Betainc", DeviceKind::kCpu, &betainc_cpu<Ts>), ...);
}

}  // namespace

void register_betainc(Registry& registry) {
  registry.add({.name = "Betainc",
                .doc = "The part of beta(a, b) whose integral is below x.",
                .inputs = {{"a", "T"}, {"b", "T"}, {"x", "T"}},
                .outputs = {{"z", "T"}},
                .types = {{"T", type_set_of<Types>}},
                .traits = {.elementwise = true, .cost = 200},
                .shape = betainc_shape,
                .gradient = betainc_grad});
  register_kernels(registry, Types());
}

}  // namespace millrace
