#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

Status check_vectors(const PartialShape& a, const PartialShape& b) {
  if (!a.compatible(b)) {
    return invalid_argument("both inputs must have the same shape, got ", a, " and ", b);
  }
  for (const PartialShape* shape : {&a, &b}) {
    if (!shape->rank_known()) continue;
    const int last = shape->rank() - 1;
    if (last < 0 || (shape->dim_known(last) && shape->dim(last) != 3)) {
      return invalid_argument("Cross-products are only defined for 3-element vectors, got ",
                              *shape);
    }
  }
  return ok_status();
}

Status cross_shape(ShapeContext& c) {
  MR_TRY(check_vectors(c.input(0), c.input(1)));
  MR_TRY_ASSIGN(PartialShape out, c.input(0).merge(c.input(1)));
  if (out.rank_known()) out.set_dim(out.rank() - 1, 3);
  c.set_output(0, std::move(out));
  return ok_status();
}

Status cross_grad(GradientContext& g) {
  g.set(0, call("Cross", {g.input(1), g.gradient()}));
  g.set(1, call("Cross", {g.gradient(), g.input(0)}));
  return ok_status();
}

Status cross_cpu(KernelContext& ctx) {
  const Tensor &a = ctx.input(0), &b = ctx.input(1);
  MR_TRY(check_vectors(a.shape(), b.shape()));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, a.shape()));
  return dispatch<RealTypes>(a.dtype(), [&]<class T>() {
    // Integers wrap.
    using R = std::conditional_t<std::is_integral_v<T>, uint64_t,
                                 std::conditional_t<std::is_same_v<T, double>, double, float>>;
    const T* x = a.data<T>().data();
    const T* y = b.data<T>().data();
    T* z = out->mutable_data<T>().data();
    const auto part = [](T p, T q, T r, T s) {
      return static_cast<T>(static_cast<R>(p) * static_cast<R>(q) -
                            static_cast<R>(r) * static_cast<R>(s));
    };
    ctx.parallel_for(a.num_elements() / 3, 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = 3 * begin; i < 3 * end; i += 3) {
        z[i] = part(x[i + 1], y[i + 2], x[i + 2], y[i + 1]);
        z[i + 1] = part(x[i + 2], y[i], x[i], y[i + 2]);
        z[i + 2] = part(x[i], y[i + 1], x[i + 1], y[i]);
      }
    });
  });
}

}  // namespace

void register_cross(Registry& registry) {
  registry.add({.name = "Cross",
                .doc = "The cross products of vectors of three elements, in the last dimension.",
                .inputs = {{"a", "T"}, {"b", "T"}},
                .outputs = {{"product", "T"}},
                .types = {{"T", kRealNumbers}},
                .traits = {.cost = 1},
                .shape = cross_shape,
                .gradient = cross_grad});
  registry.kernel("Cross", DeviceKind::kCpu, cross_cpu);
}

}  // namespace millrace
