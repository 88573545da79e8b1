#include "millrace/tensor/complex.h"

#include <complex>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/math/broadcast.h"
#include "millrace/ops/math/elementwise_kernels.h"

// Complex numbers and their parts.

namespace millrace {
namespace {

constexpr TypeSet kParts = {DType::kFloat, DType::kDouble};

AttrMap complex_type(Expr part) {
  return {{"Tout", part.dtype() == DType::kDouble ? DType::kComplex128 : DType::kComplex64}};
}
AttrMap part_type(Expr complex) {
  return {{"Tout", complex.dtype() == DType::kComplex128 ? DType::kDouble : DType::kFloat}};
}

Status conj_grad(GradientContext& c) {
  c.set(0, call("Conj", {c.gradient()}));
  return ok_status();
}
Status real_grad(GradientContext& c) {
  const Expr g = c.gradient();
  c.set(0, call("Complex", {g, zeros_like(g)}, complex_type(g)));
  return ok_status();
}
Status imag_grad(GradientContext& c) {
  const Expr g = c.gradient();
  c.set(0, call("Complex", {zeros_like(g), g}, complex_type(g)));
  return ok_status();
}
Status complex_abs_grad(GradientContext& c) {
  const Expr g = c.gradient();
  c.set(0, call("Complex", {g, zeros_like(g)}, complex_type(g)) * sign(c.input(0)));
  return ok_status();
}
Status complex_grad(GradientContext& c) {
  const Expr g = c.gradient();
  const ExprPair parts = unbroadcast(call("Real", {g}, part_type(g)),
                                     call("Imag", {g}, part_type(g)), c.input(0), c.input(1));
  c.set(0, parts.first);
  c.set(1, parts.second);
  return ok_status();
}

struct Conj {
  template <class T>
  static std::complex<T> eval(std::complex<T> x) {
    return std::conj(x);
  }
};
struct Real {
  template <class T>
  static T eval(std::complex<T> x) {
    return x.real();
  }
};
struct Imag {
  template <class T>
  static T eval(std::complex<T> x) {
    return x.imag();
  }
};
struct ComplexAbs {
  template <class T>
  static T eval(std::complex<T> x) {
    return std::abs(x);
  }
};

template <class Op, class T>
Status map_cpu(KernelContext& ctx) {
  using Out = decltype(Op::eval(std::complex<T>()));
  if (ctx.output_type(0) != dtype_of<Out>) {
    return invalid_argument(ctx.node().op->name, " of ", dtype_of<std::complex<T>>, " gives ",
                            dtype_of<Out>, ", not Tout = ", ctx.output_type(0));
  }
  const std::complex<T>* x = ctx.input(0).data<std::complex<T>>().data();
  const Shape shape = ctx.input(0).shape();
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
  Out* y = out->mutable_data<Out>().data();
  ctx.parallel_for(shape.num_elements(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = Op::eval(x[i]);
  });
  return ok_status();
}

template <class T>
Status complex_cpu(KernelContext& ctx) {
  using C = std::complex<T>;
  if (ctx.output_type(0) != dtype_of<C>) {
    return invalid_argument("Complex of ", dtype_of<T>, " gives ", dtype_of<C>,
                            ", not Tout = ", ctx.output_type(0));
  }
  MR_TRY_ASSIGN(const BroadcastPlan plan,
                BroadcastPlan::make({&ctx.input(0).shape(), &ctx.input(1).shape()}));
  const T* re = ctx.input(0).data<T>().data();
  const T* im = ctx.input(1).data<T>().data();
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, plan.shape()));
  C* z = out->mutable_data<C>().data();
  const int64_t re_step = plan.step(0), im_step = plan.step(1);
  ctx.parallel_for(plan.shape().num_elements(), 1, [&](int64_t begin, int64_t end) {
    plan.for_each_run(begin, end, [&](const int64_t* from, int64_t at, int64_t n) {
      for (int64_t i = 0; i < n; ++i)
        z[at + i] = C(re[from[0] + i * re_step], im[from[1] + i * im_step]);
    });
  });
  return ok_status();
}

template <class Op>
void add_part(Registry& registry, const char* name, const char* doc, const char* input,
              const char* output, GradientRule gradient) {
  registry.add({.name = name,
                .doc = doc,
                .inputs = {{input, "T"}},
                .outputs = {{output, "Tout"}},
                .types = {{"T", kComplex, DType::kComplex64}, {"Tout", kParts, DType::kFloat}},
                .traits = {.elementwise = true, .cost = 1},
                .shape = shape_rules::unchanged,
                .gradient = gradient});
  registry.kernel<Complex64>(name, DeviceKind::kCpu, map_cpu<Op, float>);
  registry.kernel<Complex128>(name, DeviceKind::kCpu, map_cpu<Op, double>);
}

}  // namespace

void register_complex(Registry& registry) {
  add_part<Real>(registry, "Real", "The real part.", "input", "output", real_grad);
  add_part<Imag>(registry, "Imag", "The imaginary part.", "input", "output", imag_grad);
  add_part<ComplexAbs>(registry, "ComplexAbs", "The absolute value of a complex number.", "x", "y",
                       complex_abs_grad);
  registry.add({.name = "Conj",
                .doc = "The complex conjugate.",
                .inputs = {{"input", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kComplex, DType::kComplex64}},
                .traits = {.elementwise = true, .cost = 1},
                .shape = shape_rules::unchanged,
                .gradient = conj_grad});
  registry.kernel<Complex64>("Conj", DeviceKind::kCpu, map_cpu<Conj, float>);
  registry.kernel<Complex128>("Conj", DeviceKind::kCpu, map_cpu<Conj, double>);
  registry.add({.name = "Complex",
                .doc = "Complex numbers from real and imaginary parts, broadcast together.",
                .inputs = {{"real", "T"}, {"imag", "T"}},
                .outputs = {{"out", "Tout"}},
                .types = {{"T", kParts, DType::kFloat}, {"Tout", kComplex, DType::kComplex64}},
                .traits = {.elementwise = true, .cost = 1},
                .shape = shape_rules::broadcast,
                .gradient = complex_grad});
  registry.kernel<float>("Complex", DeviceKind::kCpu, complex_cpu<float>);
  registry.kernel<double>("Complex", DeviceKind::kCpu, complex_cpu<double>);
}

}  // namespace millrace
