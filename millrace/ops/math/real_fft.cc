#include <optional>
#include <string>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/math/fft_plan.h"
#include "millrace/tensor/dispatch.h"

// RFFT, RFFT2D, RFFT3D: Fourier transforms of real numbers, of which the last dimension keeps its
// first half (n / 2 + 1 elements), and their inverses. Inputs are cropped to `fft_length`.

namespace millrace {
namespace {

// Of the last dimension, for transforms of length n.
int64_t half_length(int64_t n) { return n == 0 ? 0 : n / 2 + 1; }

// Dimension `at` of the input, of `have` elements, for a transform of length `size`.
template <bool kInverse>
Status check_length(int64_t have, int64_t size, int at, bool last) {
  const int64_t needed = last && kInverse ? half_length(size) : size;
  if (size >= 0 && needed <= have) return ok_status();
  return invalid_argument("Input dimension ", at, " must have length of at least ", needed,
                          " but got: ", have, ", for fft_length ", size);
}

template <int kRank, bool kInverse>
Status real_fft_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, c.with_rank_at_least(0, kRank));
  MR_TRY(c.input(1).merge(PartialShape({kRank})).status());
  if (!shape.rank_known()) return ok_status();
  const std::optional<std::vector<int64_t>> lengths = c.input_vector(1);
  for (int i = 0; i < kRank; ++i) {
    int64_t size = PartialShape::kUnknownDim;
    if (lengths && lengths->size() == kRank) {
      size = (*lengths)[static_cast<size_t>(i)];
      if (size < 0) return invalid_argument("fft_length must not be negative, got ", size);
    }
    const int at = shape.rank() - kRank + i;
    const bool last = i == kRank - 1;
    if (size >= 0 && shape.dim_known(at))
      MR_TRY(check_length<kInverse>(shape.dim(at), size, at, last));
    shape.set_dim(at, !kInverse && last && size >= 0 ? half_length(size) : size);
  }
  c.set_output(0, std::move(shape));
  return ok_status();
}

std::string name_of(const char* prefix, int rank) {
  const char* const ends[] = {"", "2D", "3D"};
  return str_cat(prefix, ends[rank - 1]);
}

// x with zeros after it, in each dimension up to `shape`.
Expr pad_to(Expr x, Expr shape) {
  const Expr after = shape - shape_of(x);
  return call("Pad", {x, call("Pack", {zeros_like(after), after}, {{"axis", 1}})});
}

Expr last_element(Expr vector) {
  if (!vector.valid()) return vector;
  OpBuilder& builder = *vector.builder();
  const Expr minus = int32_vector(builder, {-1});
  return call("StridedSlice",
              {vector, minus, int32_vector(builder, {0}), int32_vector(builder, {1})},
              {{"end_mask", 1}});
}

// The rest of the spectrum has no gradient: the real part of the adjoint, over zeros for it.
template <int kRank>
Status rfft_grad(GradientContext& c) {
  const Expr x = c.input(0), lengths = c.input(1), dy = c.gradient();
  if (!x.valid() || !lengths.valid() || !dy.valid()) return ok_status();
  const Expr shape = shape_of(dy);
  const Expr outer =
      call("StridedSlice", {shape, int32_vector(c.builder(), {0}), int32_vector(c.builder(), {-1}),
                            int32_vector(c.builder(), {1})});
  const Expr padded = pad_to(dy, concat({outer, last_element(lengths)}, 0));
  const Expr back = call(name_of("FFT", kRank), {call("Conj", {padded})});
  c.set(0, pad_to(call("Real", {back}, {{"Tout", x.dtype()}}), shape_of(x)));
  return ok_status();
}

// Elements of the half stand for two, but for the first and, of even lengths, the last.
template <int kRank>
Status irfft_grad(GradientContext& c) {
  const Expr x = c.input(0), lengths = c.input(1), dy = c.gradient();
  if (!x.valid() || !lengths.valid() || !dy.valid()) return ok_status();
  OpBuilder& builder = c.builder();
  const Expr n = call("Squeeze", {last_element(lengths)});
  const Expr zero = int32_scalar(builder, 0), one = int32_scalar(builder, 1);
  const Expr half = call("FloorDiv", {n, int32_scalar(builder, 2)}) + one;
  const Expr k = range(zero, half, one);
  const auto mask = [&](Expr where) { return cast(where, dy.dtype()); };
  const Expr weight = 2.0 - mask(equal(k, zero)) - mask(equal(k + k, n));
  const Expr size = cast(call("Prod", {lengths, zero}), dy.dtype());
  const Expr spectrum = call(name_of("RFFT", kRank), {dy, lengths}, {{"Tcomplex", x.dtype()}});
  c.set(0, pad_to(spectrum * cast(weight / size, x.dtype()), shape_of(x)));
  return ok_status();
}

// Where the lines (of the last dimension) of a cropped tensor lie.
struct Lines {
  int64_t count = 1;                   // of the transform
  int64_t length = 0;                  // of one of those
  int64_t in_length = 0;               // of one of the input
  std::vector<int64_t> dims, in_dims;  // all but the last

  int64_t input_line(int64_t line) const {
    int64_t at = 0, step = 1;
    for (size_t i = dims.size(); i-- > 0;) {
      at += line % dims[i] * step;
      line /= dims[i];
      step *= in_dims[i];
    }
    return at;
  }
};

template <int kRank, bool kInverse>
Result<Lines> read_lines(KernelContext& ctx) {
  const Tensor &input = ctx.input(0), &lengths = ctx.input(1);
  if (input.rank() < kRank) {
    return invalid_argument("input must have rank ", kRank, " or more, got ", input.shape());
  }
  if (!(lengths.shape() == Shape({kRank}))) {
    return invalid_argument("fft_length must have shape [", kRank, "], got ", lengths.shape());
  }
  Lines lines;
  const int batch = input.rank() - kRank;
  for (int i = 0; i < input.rank(); ++i) {
    const int64_t have = input.dim(i);
    const int64_t size = i < batch ? have : lengths.data<int32_t>()[static_cast<size_t>(i - batch)];
    const bool last = i == input.rank() - 1;
    MR_TRY(check_length<kInverse>(have, size, i, last));
    if (last) {
      lines.length = size;
      lines.in_length = have;
    } else {
      lines.dims.push_back(size);
      lines.in_dims.push_back(have);
      lines.count *= size;
    }
  }
  return lines;
}

// All dimensions of the transform but the last.
template <int kRank>
void transform_outer(KernelContext& ctx, const Lines& lines, bool inverse, Complex128* data) {
  int64_t stride = lines.length;
  for (size_t i = lines.dims.size(); i-- > lines.dims.size() + 1 - kRank;) {
    transform_dim(ctx, data, lines.dims[i], stride, lines.count * lines.length, inverse);
    stride *= lines.dims[i];
  }
}

template <class R, class C, int kRank, bool kInverse>
Status real_fft_cpu(KernelContext& ctx) {
  using From = std::conditional_t<kInverse, C, R>;
  using To = std::conditional_t<kInverse, R, C>;
  MR_TRY_ASSIGN(const Lines lines, (read_lines<kRank, kInverse>(ctx)));
  const int64_t n = lines.length, half = half_length(n);
  std::vector<int64_t> dims = lines.dims;
  dims.push_back(n);
  MR_TRY_ASSIGN(const Shape whole, Shape::make(dims));
  dims.back() = kInverse ? n : half;
  MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
  if (out->num_elements() == 0) return ok_status();
  MR_TRY_ASSIGN(Tensor work, ctx.allocate_temp(DType::kComplex128, whole));
  Complex128* const data = work.mutable_data<Complex128>().data();
  const From* const from = ctx.input(0).data<From>().data();
  To* const to = out->mutable_data<To>().data();
  const int64_t total = whole.num_elements();
  for (int64_t line = 0; line < lines.count; ++line) {
    const From* const first = from + lines.input_line(line) * lines.in_length;
    for (int64_t k = 0; k < n; ++k) {
      data[line * n + k] = kInverse && k >= half ? Complex128() : static_cast<Complex128>(first[k]);
    }
  }
  transform_outer<kRank>(ctx, lines, kInverse, data);
  for (int64_t line = 0; kInverse && line < lines.count; ++line) {
    for (int64_t k = half; k < n; ++k) data[line * n + k] = std::conj(data[line * n + n - k]);
  }
  transform_dim(ctx, data, n, 1, total, kInverse);
  for (int64_t line = 0; line < lines.count; ++line) {
    for (int64_t k = 0; k < dims.back(); ++k) {
      const Complex128 value = data[line * n + k];
      if constexpr (kInverse) {
        to[line * n + k] = static_cast<To>(value.real());
      } else {
        to[line * half + k] = static_cast<To>(value);
      }
    }
  }
  return ok_status();
}

template <int kRank, bool kInverse>
void register_one(Registry& registry) {
  const std::string name = name_of(kInverse ? "IRFFT" : "RFFT", kRank);
  registry.add(
      {.name = name,
       .doc = kInverse ? "Real numbers from the first half of their Fourier transform."
                       : "The first half of the Fourier transform of real numbers.",
       .inputs = {{"input", kInverse ? "Tcomplex" : "Treal"}, {"fft_length", "host(int32)"}},
       .outputs = {{"output", kInverse ? "Treal" : "Tcomplex"}},
       .types = {{"Treal", {DType::kFloat, DType::kDouble}, DType::kFloat},
                 {"Tcomplex", kComplex, DType::kComplex64}},
       .traits = {.cost = 50},
       .shape = real_fft_shape<kRank, kInverse>,
       .gradient = kInverse ? irfft_grad<kRank> : rfft_grad<kRank>});
  const auto kernel = [&](DType real, DType complex, KernelFunction function) {
    registry.kernel({.op = name,
                     .constraints = {{"Treal", {real}}, {"Tcomplex", {complex}}},
                     .function = function});
  };
  kernel(DType::kFloat, DType::kComplex64, real_fft_cpu<float, Complex64, kRank, kInverse>);
  kernel(DType::kDouble, DType::kComplex128, real_fft_cpu<double, Complex128, kRank, kInverse>);
}

}  // namespace

void register_real_fft(Registry& registry) {
  register_one<1, false>(registry);
  register_one<1, true>(registry);
  register_one<2, false>(registry);
  register_one<2, true>(registry);
  register_one<3, false>(registry);
  register_one<3, true>(registry);
}

}  // namespace millrace
