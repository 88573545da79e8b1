#include <string>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/math/fft_plan.h"
#include "millrace/tensor/dispatch.h"

// FFT, FFT2D, FFT3D over the innermost dimensions, and their inverses, which divide by the number
// of elements. Computed in double.

namespace millrace {
namespace {

template <int kRank>
Status fft_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, c.with_rank_at_least(0, kRank));
  c.set_output(0, std::move(shape));
  return ok_status();
}

std::string fft_name(int rank, bool inverse) {
  const char* const ends[] = {"", "2D", "3D"};
  return str_cat(inverse ? "I" : "", "FFT", ends[rank - 1]);
}

// The matrix of a transform is symmetric, so its adjoint is its conjugate.
template <int kRank, bool kInverse>
Status fft_grad(GradientContext& c) {
  const Expr back = call(fft_name(kRank, kInverse), {call("Conj", {c.gradient()})});
  c.set(0, call("Conj", {back}));
  return ok_status();
}

template <int kRank, bool kInverse>
Status fft_cpu(KernelContext& ctx) {
  const Tensor& input = ctx.input(0);
  const int rank = input.rank();
  if (rank < kRank) {
    return invalid_argument("input must have rank ", kRank, " or more, got ", input.shape());
  }
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, input.shape()));
  const int64_t total = input.num_elements();
  if (total == 0) return ok_status();
  const bool wide = input.dtype() == DType::kComplex128;
  Tensor work = *out;
  if (!wide) {
    MR_TRY_ASSIGN(work, ctx.allocate_temp(DType::kComplex128, input.shape()));
  }
  Complex128* const data =
      wide ? out->mutable_data<Complex128>().data() : work.mutable_data<Complex128>().data();
  MR_TRY(dispatch<ComplexTypes>(input.dtype(), [&]<class T>() {
    const T* const from = input.data<T>().data();
    for (int64_t i = 0; i < total; ++i) data[i] = static_cast<Complex128>(from[i]);
  }));
  int64_t stride = 1;
  for (int i = rank - 1; i >= rank - kRank; --i) {
    transform_dim(ctx, data, input.dim(i), stride, total, kInverse);
    stride *= input.dim(i);
  }
  if (wide) return ok_status();
  Complex64* const to = out->mutable_data<Complex64>().data();
  for (int64_t i = 0; i < total; ++i) to[i] = static_cast<Complex64>(data[i]);
  return ok_status();
}

template <int kRank, bool kInverse>
void register_one(Registry& registry) {
  const std::string name = fft_name(kRank, kInverse);
  OpSpec spec = {.name = name,
                 .doc = str_cat("The ", kInverse ? "inverse " : "", "Fourier transform over the ",
                                kRank == 1 ? "innermost dimension." : "innermost dimensions."),
                 .inputs = {{"input", "Tcomplex"}},
                 .outputs = {{"output", "Tcomplex"}},
                 .types = {{"Tcomplex", kComplex, DType::kComplex64}},
                 .traits = {.cost = 50},
                 .shape = fft_shape<kRank>,
                 .gradient = fft_grad<kRank, kInverse>};
  registry.add(spec);
  registry.kernel(spec.name, DeviceKind::kCpu, fft_cpu<kRank, kInverse>);
  spec.name = str_cat("Batch", name);
  spec.inputs[0].type = spec.outputs[0].type = "complex64";
  spec.types.clear();
  spec.deprecated_since = 15;
  spec.deprecation = str_cat("Use ", name);
  registry.add(spec);
  registry.kernel(spec.name, DeviceKind::kCpu, fft_cpu<kRank, kInverse>);
}

}  // namespace

void register_fft(Registry& registry) {
  register_one<1, false>(registry);
  register_one<1, true>(registry);
  register_one<2, false>(registry);
  register_one<2, true>(registry);
  register_one<3, false>(registry);
  register_one<3, true>(registry);
}

}  // namespace millrace
