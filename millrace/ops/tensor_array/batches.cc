// Many elements of a TensorArray at once: as rows of one tensor, or as pieces of it.

#include "millrace/kernel/registry.h"
#include "millrace/ops/tensor_array/tensor_array.h"
#include "millrace/tensor/leading_dimension.h"

namespace millrace {
namespace {

Status gather_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape known, tensor_array_shape(c, c.output_type(0)));
  MR_TRY_ASSIGN(PartialShape indices, c.with_rank(1, 1));
  MR_TRY_ASSIGN(PartialShape declared, c.attr<PartialShape>("element_shape"));
  MR_TRY_ASSIGN(PartialShape element, known.merge(declared));
  c.set_output(0, with_first(indices.dim(0), element));
  return ok_status();
}

Status scatter_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape element, tensor_array_shape(c, c.input_type(2)));
  MR_TRY_ASSIGN(PartialShape indices, c.with_rank(1, 1));
  MR_TRY_ASSIGN(PartialShape value, c.with_rank_at_least(2, 1));
  const PartialShape expected = with_first(indices.dim(0), element);
  if (!expected.compatible(value)) {
    return invalid_argument("value must have shape ", expected, ", one row per index, got ", value);
  }
  return flow_shape(c);
}

Status concat_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape known, tensor_array_shape(c, c.output_type(0)));
  MR_TRY_ASSIGN(PartialShape declared, c.attr<PartialShape>("element_shape_except0"));
  MR_TRY_ASSIGN(PartialShape rest, without_first(known).merge(declared));
  c.set_output(0, with_first(PartialShape::kUnknownDim, rest));
  c.set_output(1, PartialShape::of_rank(1));
  return ok_status();
}

Status split_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape element, tensor_array_shape(c, c.input_type(1)));
  MR_TRY_ASSIGN(PartialShape value, c.with_rank_at_least(1, 1));
  MR_TRY(c.with_rank(2, 1).status());
  if (!without_first(element).compatible(without_first(value))) {
    return invalid_argument("pieces of a value of shape ", value,
                            " do not fit a TensorArray with elements of shape ", element);
  }
  return flow_shape(c);
}

Status gather_grad(GradientContext& g) {
  const GradientArray array = gradient_array(g, g.input(2));
  g.set(2, call("TensorArrayScatterV3", {array.handle, g.input(1), g.gradient(), array.flow}));
  return ok_status();
}

Status scatter_grad(GradientContext& g) {
  const GradientArray array = gradient_array(g, g.gradient());
  g.set(2, call("TensorArrayGatherV3", {array.handle, g.input(1), array.flow},
                {{"dtype", g.input_type(2)}}));
  g.set(3, g.gradient());
  return ok_status();
}

Status concat_grad(GradientContext& g) {
  const GradientArray array = gradient_array(g, g.input(1));
  g.set(1, call("TensorArraySplitV3", {array.handle, g.gradient(0), g.output(1), array.flow}));
  return ok_status();
}

Status split_grad(GradientContext& g) {
  const GradientArray array = gradient_array(g, g.gradient());
  const std::vector<Expr> joined =
      call_multi("TensorArrayConcatV3", {array.handle, array.flow}, {{"dtype", g.input_type(1)}});
  if (!joined.empty()) g.set(1, joined[0]);
  g.set(3, g.gradient());
  return ok_status();
}

// The shape of an element for a result without any.
Result<Shape> shape_of_none(const TensorArray& array, const PartialShape& shape) {
  Result<Shape> known = shape.to_shape();
  if (known.ok()) return known;
  return unimplemented("TensorArray ", array.name(),
                       ": there are no elements to join, and their shape ", shape,
                       " is not fully defined");
}

class Gather : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(PartialShape shape, node.attr<PartialShape>("element_shape"));
    return std::make_unique<Gather>(std::move(shape));
  }
  explicit Gather(PartialShape element_shape) : element_shape_(std::move(element_shape)) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(Ref<TensorArray> array, tensor_array_input(ctx, ctx.output_type(0)));
    MR_TRY(expect_rank(ctx, 1, 1));
    MR_TRY_ASSIGN(std::vector<int64_t> indices, ctx.int_vector_input(1));
    MR_TRY_ASSIGN(std::vector<Tensor> elements, array->read_many(indices));
    Shape shape;
    if (elements.empty()) {
      MR_TRY_ASSIGN(PartialShape known, element_shape_.merge(array->element_shape()));
      MR_TRY_ASSIGN(shape, shape_of_none(*array, known));
    } else {
      shape = elements[0].shape();
    }
    if (!element_shape_.compatible(shape)) {
      return invalid_argument("TensorArray ", array->name(), ": elements must have shape ",
                              element_shape_, ", but index ", indices[0], " has ", shape);
    }
    for (size_t i = 1; i < elements.size(); ++i) {
      if (elements[i].shape() == shape) continue;
      return invalid_argument("TensorArray ", array->name(), " has inconsistent shapes. Index ",
                              indices[0], " has shape: ", shape, " but index ", indices[i],
                              " has shape: ", elements[i].shape());
    }
    MR_TRY_ASSIGN(Shape batch, Shape{static_cast<int64_t>(elements.size())}.concat(shape));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, batch));
    const double cost = 10 + 0.1 * static_cast<double>(shape.num_elements()) *
                                 static_cast<double>(dtype_size(out->dtype()));
    ctx.parallel_for(batch.dim(0), cost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        Tensor row = out->row(i);
        copy_elements(elements[static_cast<size_t>(i)], row);
      }
    });
    return ok_status();
  }

 private:
  const PartialShape element_shape_;
};

Status scatter(KernelContext& ctx) {
  const Tensor& value = ctx.input(2);
  MR_TRY_ASSIGN(Ref<TensorArray> array, tensor_array_input(ctx, value.dtype()));
  MR_TRY(expect_rank(ctx, 1, 1));
  MR_TRY_ASSIGN(std::vector<int64_t> indices, ctx.int_vector_input(1));
  if (value.rank() == 0 || value.dim(0) != static_cast<int64_t>(indices.size())) {
    return invalid_argument("value must have one row for each of the ", indices.size(),
                            " indices, got shape ", value.shape());
  }
  std::vector<Tensor> rows;
  rows.reserve(indices.size());
  for (int64_t i = 0; i < value.dim(0); ++i) rows.push_back(value.row(i));
  MR_TRY(array->write_many(indices, std::move(rows)));
  pass_flow(ctx);
  return ok_status();
}

class Concat : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(PartialShape shape, node.attr<PartialShape>("element_shape_except0"));
    return std::make_unique<Concat>(std::move(shape));
  }
  explicit Concat(PartialShape rest) : rest_(std::move(rest)) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(Ref<TensorArray> array, tensor_array_input(ctx, ctx.output_type(0)));
    MR_TRY_ASSIGN(std::vector<Tensor> elements, array->read_all());
    MR_TRY_ASSIGN(Shape rest, shape_of_rest(*array, elements));
    const int64_t count = static_cast<int64_t>(elements.size());
    MR_TRY_ASSIGN(Tensor * lengths, ctx.allocate_output(1, Shape{count}));
    int64_t total = 0;
    for (size_t i = 0; i < elements.size(); ++i) {
      const int64_t length = elements[i].dim(0);
      if (__builtin_add_overflow(total, length, &total)) {
        return invalid_argument("TensorArray ", array->name(), " is too large to concatenate");
      }
      lengths->mutable_data<int64_t>()[i] = length;
    }
    MR_TRY_ASSIGN(Shape shape, Shape{total}.concat(rest));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    int64_t begin = 0;
    for (const Tensor& element : elements) {
      Tensor piece = out->rows(begin, begin + element.dim(0));
      copy_elements(element, piece);
      begin += element.dim(0);
    }
    return ok_status();
  }

 private:
  // What all elements have in common behind their first dimension.
  Result<Shape> shape_of_rest(const TensorArray& array, const std::vector<Tensor>& elements) const {
    if (elements.empty()) {
      MR_TRY_ASSIGN(PartialShape known, rest_.merge(without_first(array.element_shape())));
      return shape_of_none(array, known);
    }
    Shape rest;
    for (size_t i = 0; i < elements.size(); ++i) {
      if (elements[i].rank() == 0) {
        return invalid_argument("TensorArray ", array.name(), ": Concat saw a scalar at index ", i,
                                " but requires at least vectors");
      }
      const Shape here = elements[i].shape().without_first();
      if (i == 0) rest = here;
      if (here == rest) continue;
      return invalid_argument(
          "TensorArray ", array.name(),
          " has inconsistent shapes. Index 0 has (excepting dimension 0) shape: ", rest,
          " but index ", i, " has: ", here);
    }
    if (rest_.compatible(rest)) return rest;
    return invalid_argument("TensorArray ", array.name(),
                            ": elements must have (excepting dimension 0) shape ", rest_, ", got ",
                            rest);
  }

  const PartialShape rest_;
};

Status split(KernelContext& ctx) {
  const Tensor& value = ctx.input(1);
  MR_TRY_ASSIGN(Ref<TensorArray> array, tensor_array_input(ctx, value.dtype()));
  MR_TRY(expect_rank(ctx, 2, 1));
  if (value.rank() == 0) {
    return invalid_argument("value must be at least a vector, got a scalar");
  }
  std::vector<Tensor> pieces;
  int64_t begin = 0;
  for (int64_t length : ctx.input(2).data<int64_t>()) {
    if (length < 0 || length > value.dim(0) - begin) {
      return invalid_argument("lengths must not be negative and have the sum ", value.dim(0),
                              " of value's rows, got ", ctx.input(2));
    }
    pieces.push_back(value.rows(begin, begin + length));
    begin += length;
  }
  if (begin != value.dim(0)) {
    return invalid_argument("lengths must have the sum ", value.dim(0), " of value's rows, got ",
                            begin);
  }
  MR_TRY(array->write_all(std::move(pieces)));
  pass_flow(ctx);
  return ok_status();
}

}  // namespace

void register_tensor_array_batches(Registry& registry) {
  registry.add(
      {.name = "TensorArrayGatherV3",
       .doc = "Joins the elements at some indices to one tensor, one row each.",
       .inputs = {{"handle", "resource"}, {"indices", "host(int32)"}, {"flow_in", "float"}},
       .outputs = {{"value", "dtype"}},
       .types = {{"dtype", {}}},
       .attrs = {{"element_shape", "shape = ?"}},
       .traits = {.stateful = true},
       .shape = gather_shape,
       .gradient = gather_grad});
  registry.add({.name = "TensorArrayScatterV3",
                .doc = "Writes the rows of a tensor to some indices.",
                .inputs = {{"handle", "resource"},
                           {"indices", "host(int32)"},
                           {"value", "T"},
                           {"flow_in", "float"}},
                .outputs = {{"flow_out", "float"}},
                .types = {{"T", {}}},
                .traits = {.stateful = true, .may_alias = 8},
                .shape = scatter_shape,
                .gradient = scatter_grad});
  registry.add({.name = "TensorArrayConcatV3",
                .doc = "Joins all elements along their first dimension.",
                .inputs = {{"handle", "resource"}, {"flow_in", "float"}},
                .outputs = {{"value", "dtype"}, {"lengths", "host(int64)"}},
                .types = {{"dtype", {}}},
                .attrs = {{"element_shape_except0", "shape = ?"}},
                .traits = {.stateful = true},
                .shape = concat_shape,
                .gradient = concat_grad});
  registry.add({.name = "TensorArraySplitV3",
                .doc = "Cuts a tensor along its first dimension and writes the pieces.",
                .inputs = {{"handle", "resource"},
                           {"value", "T"},
                           {"lengths", "host(int64)"},
                           {"flow_in", "float"}},
                .outputs = {{"flow_out", "float"}},
                .types = {{"T", {}}},
                .traits = {.stateful = true, .may_alias = 8},
                .shape = split_shape,
                .gradient = split_grad});
  registry.kernel<Gather>("TensorArrayGatherV3", DeviceKind::kCpu);
  registry.kernel("TensorArrayScatterV3", DeviceKind::kCpu, scatter);
  registry.kernel<Concat>("TensorArrayConcatV3", DeviceKind::kCpu);
  registry.kernel("TensorArraySplitV3", DeviceKind::kCpu, split);
}

}  // namespace millrace
