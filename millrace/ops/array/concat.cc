// Ops that join tensors: along a dimension they have, or along a new one.

#include <algorithm>
#include <limits>
#include <optional>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/host_ints.h"
#include "millrace/ops/array/strided_copy.h"

namespace millrace {
namespace {

// Inputs [first, first + n) of a node.
struct Inputs {
  int first, n;
  int end() const { return first + n; }
};

// Writes each input, seen as `outer` runs, into the runs of the output one after the other.
void join(const KernelContext& ctx, Inputs values, int64_t outer, Tensor& out) {
  if (out.num_elements() == 0) return;
  const int64_t out_run = out.num_elements() / outer;
  int64_t offset = 0;
  for (int i = values.first; i < values.end(); ++i) {
    const Tensor& value = ctx.input(i);
    const int64_t run = value.num_elements() / outer;
    StridedCopy copy;
    copy.add_dim(outer, run, out_run);
    copy.add_dim(run, 1, 1);
    copy.run(ctx, value, 0, out, offset);
    offset += run;
  }
}

// Where ConcatV2 and Concat keep their inputs.
Inputs concat_values_v2(int num_inputs) { return {0, num_inputs - 1}; }
Inputs concat_values_v1(int num_inputs) { return {1, num_inputs - 1}; }
int concat_axis(Inputs values) { return values.first == 0 ? values.n : 0; }

Status concat_shape_of(ShapeContext& c, Inputs values) {
  MR_TRY(c.with_rank(concat_axis(values), 0).status());
  int rank = -1;
  for (int i = values.first; i < values.end(); ++i) {
    if (!c.input(i).rank_known()) continue;
    if (rank >= 0 && c.input(i).rank() != rank) {
      return invalid_argument("values must have one rank: input ", i, " is ", c.input(i),
                              ", expected rank ", rank);
    }
    rank = c.input(i).rank();
  }
  if (rank < 0) return ok_status();
  if (rank == 0) return invalid_argument("Can't concatenate scalars (use tf.stack instead)");
  const std::optional<int64_t> given = c.input_scalar(concat_axis(values));
  if (!given) {
    c.set_output(0, PartialShape::of_rank(rank));
    return ok_status();
  }
  MR_TRY_ASSIGN(const int axis, normalize_axis(*given, rank, "axis"));
  PartialShape out = PartialShape::of_rank(rank);
  int64_t total = 0;
  for (int i = values.first; i < values.end(); ++i) {
    PartialShape shape = c.input(i).rank_known() ? c.input(i) : PartialShape::of_rank(rank);
    if (total < 0 || !shape.dim_known(axis)) {
      total = -1;
    } else if (__builtin_add_overflow(total, shape.dim(axis), &total)) {
      return invalid_argument("the sizes along axis ", axis, " are too large together");
    }
    shape.set_dim(axis, -1);
    Result<PartialShape> both = out.merge(shape);
    if (!both.ok()) {
      return invalid_argument("values must agree in all dimensions but ", axis, ": input ", i,
                              " is ", c.input(i), ", those before it are ", out);
    }
    out = std::move(both).value();
  }
  out.set_dim(axis, total);
  MR_TRY_ASSIGN(out, PartialShape::make(out.dims()));
  c.set_output(0, std::move(out));
  return ok_status();
}
Status concat_v2_shape(ShapeContext& c) {
  return concat_shape_of(c, concat_values_v2(c.num_inputs()));
}
Status concat_v1_shape(ShapeContext& c) {
  return concat_shape_of(c, concat_values_v1(c.num_inputs()));
}

void concat_value_of(ValueContext& c, Inputs values) {
  PartialValue out;
  bool any = false;
  for (int i = values.first; i < values.end(); ++i) {
    const PartialShape& shape = c.input_shape(i);
    if (shape.rank() != 1 || !shape.dim_known(0) || shape.dim(0) > kMaxValueElements) return;
    if (const PartialValue* value = c.input(i)) {
      any = true;
      out.elements.insert(out.elements.end(), value->elements.begin(), value->elements.end());
    } else {
      out.elements.resize(out.elements.size() + static_cast<size_t>(shape.dim(0)));
    }
  }
  if (any) c.set_output(0, std::move(out));
}
void concat_v2_value(ValueContext& c) { concat_value_of(c, concat_values_v2(c.num_inputs())); }
void concat_v1_value(ValueContext& c) { concat_value_of(c, concat_values_v1(c.num_inputs())); }

Status concat_grad_of(GradientContext& g, Inputs values) {
  std::vector<Expr> inputs;
  for (int i = values.first; i < values.end(); ++i) inputs.push_back(g.input(i));
  const std::vector<Expr> shapes = call_multi("ShapeN", inputs);
  if (shapes.empty()) return g.builder().status();
  std::vector<Expr> offset_inputs = {cast(g.input(concat_axis(values)), DType::kInt32)};
  offset_inputs.insert(offset_inputs.end(), shapes.begin(), shapes.end());
  const std::vector<Expr> offsets = call_multi("ConcatOffset", offset_inputs);
  for (size_t i = 0; i < offsets.size(); ++i) {
    g.set(values.first + static_cast<int>(i), call("Slice", {g.gradient(), offsets[i], shapes[i]}));
  }
  return ok_status();
}
Status concat_v2_grad(GradientContext& g) {
  return concat_grad_of(g, concat_values_v2(g.num_inputs()));
}
Status concat_v1_grad(GradientContext& g) {
  return concat_grad_of(g, concat_values_v1(g.num_inputs()));
}

Status concat_of(KernelContext& ctx, Inputs values) {
  MR_TRY(expect_rank(ctx, concat_axis(values), 0));
  MR_TRY_ASSIGN(const int64_t given, ctx.int_scalar_input(concat_axis(values)));
  const Shape& first = ctx.input(values.first).shape();
  const int rank = first.rank();
  if (rank == 0) return invalid_argument("Can't concatenate scalars (use tf.stack instead)");
  MR_TRY_ASSIGN(const int axis, normalize_axis(given, rank, "axis"));
  int64_t total = 0;
  int filled = 0, last_filled = values.first;
  for (int i = values.first; i < values.end(); ++i) {
    const Shape& shape = ctx.input(i).shape();
    bool agrees = shape.rank() == rank;
    for (int k = 0; agrees && k < rank; ++k) agrees = k == axis || shape.dim(k) == first.dim(k);
    if (!agrees) {
      return invalid_argument("values must agree in all dimensions but ", axis, ": input ", i,
                              " is ", shape, ", input ", values.first, " is ", first);
    }
    if (__builtin_add_overflow(total, shape.dim(axis), &total)) {
      return invalid_argument("the sizes along axis ", axis, " are too large together");
    }
    if (shape.num_elements() > 0) {
      ++filled;
      last_filled = i;
    }
  }
  MR_TRY_ASSIGN(const Shape out_shape, first.with_dim(axis, total));
  if (filled == 1) {
    ctx.set_output_value(0, ctx.take_input(last_filled));
    return ok_status();
  }
  int64_t outer = 1;
  for (int i = 0; i < axis; ++i) outer *= first.dim(i);
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, out_shape));
  join(ctx, values, outer, *out);
  return ok_status();
}
Status concat_v2_cpu(KernelContext& ctx) {
  return concat_of(ctx, concat_values_v2(ctx.num_inputs()));
}
Status concat_v1_cpu(KernelContext& ctx) {
  return concat_of(ctx, concat_values_v1(ctx.num_inputs()));
}

// That the shapes do not fit each other or the dimension shows when the op runs, as in TensorFlow.
Status concat_offset_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(0, 0).status());
  for (int i = 1; i < c.num_inputs(); ++i) c.set_output(i - 1, c.input(i));
  return ok_status();
}

void concat_offset_value(ValueContext& c) {
  const PartialValue* dim = c.input(0);
  const PartialShape& shape = c.input_shape(1);
  if (dim == nullptr || dim->elements.size() != 1 || !dim->elements[0]) return;
  if (shape.rank() != 1 || !shape.dim_known(0) || shape.dim(0) > Shape::kMaxRank) return;
  const Result<int> axis = normalize_axis(*dim->elements[0], static_cast<int>(shape.dim(0)));
  if (!axis.ok()) return;
  const size_t at = static_cast<size_t>(*axis);
  std::optional<int64_t> offset = 0;
  for (int i = 1; i < c.num_inputs(); ++i) {
    if (!c.input_shape(i).compatible(shape)) return;
    PartialValue out;
    out.elements.assign(static_cast<size_t>(shape.dim(0)), 0);
    out.elements[at] = offset;
    c.set_output(i - 1, std::move(out));
    const PartialValue* value = c.input(i);
    if (value == nullptr || value->elements.size() <= at || !value->elements[at] ||
        *value->elements[at] < 0 || *value->elements[at] > std::numeric_limits<int32_t>::max()) {
      offset.reset();
    } else if (offset) {
      *offset += *value->elements[at];
    }
  }
}

Status concat_offset(KernelContext& ctx) {
  MR_TRY(expect_rank(ctx, 0, 0));
  MR_TRY_ASSIGN(const int32_t dim, ctx.scalar_input<int32_t>(0));
  for (int i = 1; i < ctx.num_inputs(); ++i) {
    if (ctx.input(i).rank() == 1) continue;
    return invalid_argument("shape ", i - 1, " should be a vector, got shape ",
                            ctx.input(i).shape());
  }
  const auto first = ctx.input(1).data<int32_t>();
  if (first.size() > static_cast<size_t>(Shape::kMaxRank)) {
    return invalid_argument("a shape has at most ", Shape::kMaxRank, " dimensions, got ",
                            first.size());
  }
  const auto rank = static_cast<int>(first.size());
  if (dim < -rank || dim >= rank) {
    return invalid_argument("Concat dim is out of range: ", dim, " vs. ", rank);
  }
  const int axis = dim < 0 ? dim + rank : dim;
  int32_t offset = 0;
  for (int i = 1; i < ctx.num_inputs(); ++i) {
    const auto shape = ctx.input(i).data<int32_t>();
    if (shape.size() != first.size()) {
      return invalid_argument("shape ", i - 1, " should contain ", rank, " elements, got ",
                              shape.size());
    }
    for (size_t k = 0; k < shape.size(); ++k) {
      if (static_cast<int>(k) != axis && shape[k] != first[k]) {
        return invalid_argument("All dimensions except ", axis, " must match. Input ", i - 1,
                                " has shape [", str_join(shape, " "),
                                "] and doesn't match input 0 with shape [", str_join(first, " "),
                                "].");
      }
    }
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(i - 1, ctx.input(i).shape()));
    auto values = out->mutable_data<int32_t>();
    std::fill(values.begin(), values.end(), 0);
    values[static_cast<size_t>(axis)] = offset;
    const int32_t size = shape[static_cast<size_t>(axis)];
    if (size < 0 || __builtin_add_overflow(offset, size, &offset)) {
      return invalid_argument("shape ", i - 1, " has size ", size, " in dimension ", axis,
                              ": negative, or the sum does not fit in int32");
    }
  }
  return ok_status();
}

Status pack_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const int64_t given, c.attr<int64_t>("axis"));
  PartialShape shape;
  for (int i = 0; i < c.num_inputs(); ++i) {
    Result<PartialShape> both = shape.merge(c.input(i));
    if (!both.ok()) {
      return invalid_argument("values must have one shape: input ", i, " is ", c.input(i),
                              ", those before it are ", shape);
    }
    shape = std::move(both).value();
  }
  if (!shape.rank_known()) return ok_status();
  MR_TRY_ASSIGN(const int axis, normalize_axis(given, shape.rank() + 1, "axis"));
  std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
  dims.insert(dims.begin() + axis, c.num_inputs());
  MR_TRY_ASSIGN(PartialShape out, PartialShape::make(dims));
  c.set_output(0, std::move(out));
  return ok_status();
}

void pack_value(ValueContext& c) {
  PartialValue out;
  bool any = false;
  for (int i = 0; i < c.num_inputs(); ++i) {
    // An input of unknown rank is a scalar when another one is.
    if (c.input_shape(i).rank_known() && c.input_shape(i).rank() != 0) return;
    const PartialValue* value = c.input(i);
    any |= value != nullptr && value->elements[0].has_value();
    out.elements.push_back(value == nullptr ? std::nullopt : value->elements[0]);
  }
  if (any) c.set_output(0, std::move(out));
}

Status pack_grad(GradientContext& g) {
  const std::vector<Expr> parts = call_multi(
      "Unpack", {g.gradient()}, {{"num", g.num_inputs()}, {"axis", g.attr_value("axis")}});
  for (size_t i = 0; i < parts.size(); ++i) g.set(static_cast<int>(i), parts[i]);
  return ok_status();
}

class Pack : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const int64_t axis, node.attr<int64_t>("axis"));
    return std::make_unique<Pack>(axis);
  }
  explicit Pack(int64_t axis) : axis_(axis) {}

  Status compute(KernelContext& ctx) const override {
    const Shape& shape = ctx.input(0).shape();
    MR_TRY_ASSIGN(const int axis, normalize_axis(axis_, shape.rank() + 1, "axis"));
    for (int i = 1; i < ctx.num_inputs(); ++i) {
      if (ctx.input(i).shape() == shape) continue;
      return invalid_argument("values must have one shape: input ", i, " is ", ctx.input(i).shape(),
                              ", input 0 is ", shape);
    }
    HostInts dims;
    int64_t outer = 1;
    for (int i = 0; i <= shape.rank(); ++i) {
      dims.add(i < axis ? shape.dim(i) : i == axis ? ctx.num_inputs() : shape.dim(i - 1));
      if (i < axis) outer *= shape.dim(i);
    }
    MR_TRY_ASSIGN(const Shape out_shape, Shape::make(dims.span()));
    if (ctx.num_inputs() == 1) {
      Value value = ctx.take_input(0);
      MR_TRY_ASSIGN(value.tensor, value.tensor.reshaped(out_shape));
      ctx.set_output_value(0, std::move(value));
      return ok_status();
    }
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, out_shape));
    join(ctx, {0, ctx.num_inputs()}, outer, *out);
    return ok_status();
  }

 private:
  int64_t axis_;
};

}  // namespace

void register_concat(Registry& registry) {
  registry.add({.name = "ConcatV2",
                .doc = "Joins tensors along one dimension.",
                .inputs = {{"values", "N*T"}, {"axis", "host(Tidx)"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}, {"Tidx", kIndexTypes, DType::kInt32}},
                .attrs = {{"N", "int >= 2"}},
                .traits = {.may_alias = ~0U, .cost = 0.5F, .dimensions_in = "axis"},
                .shape = concat_v2_shape,
                .value = concat_v2_value,
                .gradient = concat_v2_grad});
  registry.add({.name = "Concat",
                .doc = "Joins tensors along one dimension.",
                .inputs = {{"concat_dim", "host(int32)"}, {"values", "N*T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}},
                .attrs = {{"N", "int >= 2"}},
                .traits = {.may_alias = ~0U, .cost = 0.5F, .dimensions_in = "concat_dim"},
                .shape = concat_v1_shape,
                .value = concat_v1_value,
                .gradient = concat_v1_grad});
  registry.add({.name = "ConcatOffset",
                .doc = "Where each of several tensors begins in their concatenation.",
                .inputs = {{"concat_dim", "host(int32)"}, {"shape", "host(N*int32)"}},
                .outputs = {{"offset", "host(N*int32)"}},
                .attrs = {{"N", "int >= 2"}},
                .traits = {.cannot_differentiate = true},
                .shape = concat_offset_shape,
                .value = concat_offset_value});
  registry.add(
      {.name = "Pack",
       .doc = "Joins tensors of one shape along a new dimension.",
       .inputs = {{"values", "N*T"}},
       .outputs = {{"output", "T"}},
       .types = {{"T", {}}},
       .attrs = {{"N", "int >= 1"}, {"axis", "int = 0", "Where the dimension is inserted."}},
       .traits = {.may_alias = ~0U, .cost = 0.5F},
       .shape = pack_shape,
       .value = pack_value,
       .gradient = pack_grad});
  registry.kernel("ConcatV2", DeviceKind::kCpu, concat_v2_cpu);
  registry.kernel("Concat", DeviceKind::kCpu, concat_v1_cpu);
  registry.kernel("ConcatOffset", DeviceKind::kAny, concat_offset);
  registry.kernel<Pack>("Pack", DeviceKind::kCpu);
}

}  // namespace millrace
