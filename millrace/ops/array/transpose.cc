// Ops that change the order of dimensions, or of the elements along them.

#include <algorithm>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/host_ints.h"
#include "millrace/ops/array/strided_copy.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// Whether the n values are 0 ... n - 1 in some order; n <= HostInts::kMax.
Status check_permutation(std::span<const int64_t> values) {
  bool seen[HostInts::kMax] = {};
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t v = values[i];
    if (v < 0 || v >= static_cast<int64_t>(values.size())) {
      return invalid_argument("element ", i, " of the permutation is ", v, ", expected one in [0, ",
                              values.size(), ")");
    }
    if (seen[v]) return invalid_argument(v, " appears twice in the permutation");
    seen[v] = true;
  }
  return ok_status();
}

Status transpose_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape count, c.with_rank(1, 1));
  if (c.input(0).rank_known()) {
    Result<PartialShape> both = count.merge(PartialShape({c.input(0).rank()}));
    if (!both.ok()) {
      return invalid_argument("'perm' must have one element per dimension of ", c.input(0),
                              ", got ", count);
    }
    count = std::move(both).value();
  }
  if (!count.dim_known(0)) return ok_status();
  if (count.dim(0) > Shape::kMaxRank) return invalid_argument("'perm' is too long: ", count);
  const int rank = static_cast<int>(count.dim(0));
  PartialShape out = PartialShape::of_rank(rank);
  if (const auto perm = c.input_vector(1)) {
    MR_TRY(check_permutation(*perm));
    for (int i = 0; i < rank && c.input(0).rank_known(); ++i) {
      out.set_dim(i, c.input(0).dim(static_cast<int>((*perm)[static_cast<size_t>(i)])));
    }
  }
  c.set_output(0, std::move(out));
  return ok_status();
}

template <bool kConjugate>
Status transpose_grad(GradientContext& g) {
  const Expr inverse = call("InvertPermutation", {g.input(1)});
  g.set(0, call(kConjugate ? "ConjugateTranspose" : "Transpose", {g.gradient(), inverse}));
  return ok_status();
}

Status transpose_cpu(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  const int rank = x.rank();
  HostInts perm, strides, sizes;
  MR_TRY(perm.read_vector(ctx, 1, "perm", rank));
  MR_TRY(check_permutation(perm.span()));
  int64_t stride = x.num_elements();
  for (int i = 0; i < rank; ++i) {
    if (stride != 0) stride /= x.dim(i);
    strides.add(stride);
    sizes.add(x.dim(static_cast<int>(perm[i])));
  }
  MR_TRY_ASSIGN(const Shape shape, Shape::make(sizes.span()));
  StridedCopy copy;
  int64_t to_stride = shape.num_elements();
  for (int i = 0; i < rank && to_stride != 0; ++i) {
    to_stride /= sizes[i];
    copy.add_dim(sizes[i], strides[static_cast<int>(perm[i])], to_stride);
  }
  if (shape.num_elements() == 0 || copy.contiguous()) {
    Value value = ctx.take_input(0);
    MR_TRY_ASSIGN(value.tensor, value.tensor.reshaped(shape));
    ctx.set_output_value(0, std::move(value));
    return ok_status();
  }
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
  copy.run(ctx, x, 0, *out, 0);
  return ok_status();
}

Status conjugate_transpose_cpu(KernelContext& ctx) {
  MR_TRY(transpose_cpu(ctx));
  Tensor& y = ctx.output_value(0).tensor;
  if (!kComplex.contains(y.dtype())) return ok_status();
  Tensor from = y;
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, from.shape()));
  return dispatch<ComplexTypes>(from.dtype(), [&]<class T>() {
    const T* in = from.data<T>().data();
    T* to = out->mutable_data<T>().data();
    ctx.parallel_for(from.num_elements(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = std::conj(in[i]);
    });
  });
}

Status invert_permutation_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, c.with_rank(0, 1));
  c.set_output(0, std::move(shape));
  return ok_status();
}

void invert_permutation_value(ValueContext& c) {
  const PartialValue* x = c.input(0);
  if (x == nullptr || x->is_scalar || !x->fully_known()) return;
  PartialValue out;
  out.elements.resize(x->elements.size());
  for (size_t i = 0; i < x->elements.size(); ++i) {
    const int64_t v = *x->elements[i];
    if (v < 0 || v >= static_cast<int64_t>(x->elements.size())) return;
    out.elements[static_cast<size_t>(v)] = static_cast<int64_t>(i);
  }
  if (out.fully_known()) c.set_output(0, std::move(out));
}

template <class T>
Status invert_permutation_typed(KernelContext& ctx) {
  MR_TRY(expect_rank(ctx, 0, 1));
  const auto x = ctx.input(0).data<T>();
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, ctx.input(0).shape()));
  auto y = out->mutable_data<T>();
  std::fill(y.begin(), y.end(), T{-1});
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t v = x[i];
    if (v < 0 || v >= static_cast<int64_t>(x.size())) {
      return invalid_argument("element ", i, " of the permutation is ", v, ", expected one in [0, ",
                              x.size(), ")");
    }
    if (y[static_cast<size_t>(v)] != -1) {
      return invalid_argument(v, " appears twice in the permutation");
    }
    y[static_cast<size_t>(v)] = static_cast<T>(i);
  }
  return ok_status();
}

// The axes named in input 1, each once, as flags.
Status read_axes(std::span<const int64_t> axes, int rank, bool* flags) {
  std::fill_n(flags, rank, false);
  for (int64_t given : axes) {
    MR_TRY_ASSIGN(const int axis, normalize_axis(given, rank, "axis"));
    if (flags[axis]) return invalid_argument("axis ", axis, " is given twice");
    flags[axis] = true;
  }
  return ok_status();
}

Status reverse_v2_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(1, 1).status());
  if (const auto axes = c.input_vector(1); axes && c.input(0).rank_known()) {
    bool flags[Shape::kMaxRank];
    MR_TRY(read_axes(*axes, c.input(0).rank(), flags));
  }
  c.set_output(0, c.input(0));
  return ok_status();
}

Status reverse_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape dims, c.with_rank(1, 1));
  if (dims.dim_known(0) && c.input(0).rank_known() && dims.dim(0) != c.input(0).rank()) {
    return invalid_argument("'dims' must have one element per dimension of ", c.input(0), ", got ",
                            dims);
  }
  c.set_output(0, c.input(0));
  return ok_status();
}

void reverse_v2_value(ValueContext& c) {
  const PartialValue *value = c.input(0), *axes = c.input(1);
  if (value == nullptr || axes == nullptr) return;
  PartialValue out = *value;
  // The only axis a vector has.
  if (axes->elements.size() == 1) std::reverse(out.elements.begin(), out.elements.end());
  c.set_output(0, std::move(out));
}

Status reverse_v2_grad(GradientContext& g) {
  g.set(0, call("ReverseV2", {g.gradient(), g.input(1)}));
  return ok_status();
}

Status reverse_grad(GradientContext& g) {
  g.set(0, call("Reverse", {g.gradient(), g.input(1)}));
  return ok_status();
}

Status reverse_along(KernelContext& ctx, const bool* reversed) {
  const Tensor& x = ctx.input(0);
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, x.shape()));
  if (x.num_elements() == 0) return ok_status();
  StridedCopy copy;
  int64_t stride = x.num_elements(), offset = 0;
  for (int i = 0; i < x.rank(); ++i) {
    stride /= x.dim(i);
    const bool backwards = reversed[i];  // read once: it may be the user's memory
    if (backwards) offset += (x.dim(i) - 1) * stride;
    copy.add_dim(x.dim(i), backwards ? -stride : stride, stride);
  }
  copy.run(ctx, x, offset, *out, 0);
  return ok_status();
}

Status reverse_v2_cpu(KernelContext& ctx) {
  HostInts axes;
  MR_TRY(axes.read_vector(ctx, 1, "axis"));
  bool reversed[Shape::kMaxRank];
  MR_TRY(read_axes(axes.span(), ctx.input(0).rank(), reversed));
  return reverse_along(ctx, reversed);
}

Status reverse_cpu(KernelContext& ctx) {
  const Shape& dims = ctx.input(1).shape();
  if (dims.rank() != 1 || dims.dim(0) != ctx.input(0).rank()) {
    return invalid_argument("'dims' must have one element per dimension of ", ctx.input(0).shape(),
                            ", got shape ", dims);
  }
  return reverse_along(ctx, ctx.input(1).data<bool>().data());
}

constexpr TypeSet kReversible = kNumbers | TypeSet{DType::kBool, DType::kString};

}  // namespace

void register_transpose(Registry& registry) {
  for (const bool conjugate : {false, true}) {
    registry.add({.name = conjugate ? "ConjugateTranspose" : "Transpose",
                  .doc = conjugate ? "As Transpose, with complex elements conjugated."
                                   : "Dimension i of the output is dimension perm[i] of the input.",
                  .inputs = {{"x", "T"}, {"perm", "host(Tperm)"}},
                  .outputs = {{"y", "T"}},
                  .types = {{"T", {}}, {"Tperm", kIndexTypes, DType::kInt32}},
                  .traits = {.permutes = !conjugate, .may_alias = 1, .cost = 1},
                  .shape = transpose_shape,
                  .gradient = conjugate ? transpose_grad<true> : transpose_grad<false>});
  }
  registry.add({.name = "InvertPermutation",
                .doc = "The permutation y with y[x[i]] = i.",
                .inputs = {{"x", "host(T)"}},
                .outputs = {{"y", "host(T)"}},
                .types = {{"T", kIndexTypes, DType::kInt32}},
                .traits = {.cannot_differentiate = true},
                .shape = invert_permutation_shape,
                .value = invert_permutation_value});
  registry.add({.name = "ReverseV2",
                .doc = "The elements in opposite order along the axes given.",
                .inputs = {{"tensor", "T"}, {"axis", "host(Tidx)"}},
                .outputs = {{"output", "T"}},
                .types = {{"Tidx", kIndexTypes, DType::kInt32}, {"T", kReversible}},
                .traits = {.cost = 0.7F, .same_when_empty = 2, .dimensions_in = "axis"},
                .shape = reverse_v2_shape,
                .value = reverse_v2_value,
                .gradient = reverse_v2_grad});
  registry.add({.name = "Reverse",
                .doc = "The elements in opposite order along the dimensions where dims is true.",
                .inputs = {{"tensor", "T"}, {"dims", "host(bool)"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", kReversible}},
                .traits = {.cost = 0.7F},
                .shape = reverse_shape,
                .gradient = reverse_grad});
  registry.kernel("Transpose", DeviceKind::kCpu, transpose_cpu);
  registry.kernel("ConjugateTranspose", DeviceKind::kCpu, conjugate_transpose_cpu);
  registry.kernel<int32_t>("InvertPermutation", DeviceKind::kAny,
                           invert_permutation_typed<int32_t>);
  registry.kernel<int64_t>("InvertPermutation", DeviceKind::kAny,
                           invert_permutation_typed<int64_t>);
  registry.kernel("ReverseV2", DeviceKind::kCpu, reverse_v2_cpu);
  registry.kernel("Reverse", DeviceKind::kCpu, reverse_cpu);
}

}  // namespace millrace
