// Many elements of a list at once, as rows of one tensor.

#include <algorithm>
#include <utility>

#include "millrace/kernel/registry.h"
#include "millrace/ops/indices.h"
#include "millrace/ops/tensor_list/list_ops.h"

namespace millrace {
namespace {

Status stack_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape element, list_shape(c, 0, c.output_type(0), 1));
  MR_TRY_ASSIGN(const int64_t count, c.attr<int64_t>("num_elements"));
  if (count < -1) return invalid_argument("num_elements must be -1 or more, got ", count);
  c.set_output(0, with_first(count, element));
  return ok_status();
}

Status gather_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape element, list_shape(c, 0, c.output_type(0), 2));
  MR_TRY_ASSIGN(const PartialShape indices, c.with_rank(1, 1));
  c.set_output(0, with_first(indices.dim(0), element));
  return ok_status();
}

// A list of rows of input `tensor`, with the element_shape of input `shape_input`.
Status rows_shape(ShapeContext& c, int tensor, int shape_input) {
  MR_TRY_ASSIGN(const PartialShape rows, c.with_rank_at_least(tensor, 1));
  MR_TRY_ASSIGN(PartialShape element, c.input_as_shape(shape_input));
  MR_TRY(check_fits(element, without_first(rows)));
  set_list(c, 0, c.input_type(tensor), std::move(element));
  return ok_status();
}

Status from_tensor_shape(ShapeContext& c) { return rows_shape(c, 0, 1); }

// One index for each row.
Status check_indices(const ShapeContext& c, int tensor, int indices) {
  MR_TRY_ASSIGN(const PartialShape rows, c.with_rank_at_least(tensor, 1));
  MR_TRY_ASSIGN(const PartialShape at, c.with_rank(indices, 1));
  if (!rows.rank_known() || PartialShape{rows.dim(0)}.compatible(at)) return ok_status();
  return invalid_argument("expected one index for each row of the tensor, got indices of shape ",
                          at, " for a tensor of shape ", rows);
}

Status check_length(int64_t length) {
  if (length >= -1) return ok_status();
  return invalid_argument("num_elements must be -1 or more, got ", length);
}

Status scatter_shape(ShapeContext& c) {
  MR_TRY(check_indices(c, 0, 1));
  if (c.num_inputs() > 3) {
    MR_TRY(c.with_rank(3, 0).status());
    MR_TRY(check_length(c.input_scalar(3).value_or(-1)));
  }
  return rows_shape(c, 0, 2);
}

Status scatter_into_shape(ShapeContext& c) {
  MR_TRY(check_indices(c, 1, 2));
  MR_TRY_ASSIGN(PartialShape list, list_shape(c, 0, c.input_type(1)));
  MR_TRY(check_fits(list, without_first(c.input(1))));
  set_list(c, 0, c.input_type(1), std::move(list));
  return ok_status();
}

Status stack_grad(GradientContext& g) {
  const Expr dx = g.gradient();
  if (!differentiable(dx.dtype())) return ok_status();
  g.set(0, call("TensorListFromTensor", {dx, element_shape_of(g.input(0))}));
  return ok_status();
}

Status from_tensor_grad(GradientContext& g) {
  const Expr x = g.input(0);
  if (!differentiable(x.dtype())) return ok_status();
  const int64_t rows = x.shape().rank() > 0 ? x.shape().dim(0) : PartialShape::kUnknownDim;
  g.set(0, complete(call("TensorListStack", {g.gradient(), row_shape_of(x)},
                         {{"element_dtype", x.dtype()}, {"num_elements", rows}}),
                    x));
  return ok_status();
}

// An element that was read several times gets the sum of what came back.
Status gather_grad(GradientContext& g) {
  Expr dx = g.gradient(), indices = g.input(1);
  if (!differentiable(dx.dtype())) return ok_status();
  if (dx.dtype() != DType::kVariant) {
    const std::vector<Expr> unique = call_multi("Unique", {indices}, {{"out_idx", DType::kInt32}});
    if (unique.empty()) return ok_status();
    dx = call("UnsortedSegmentSum", {dx, unique[1], size_of(unique[0])});
    indices = unique[0];
  }
  g.set(0, call("TensorListScatterIntoExistingList",
                {reserve_like(g.input(0), dx.dtype()), dx, indices}));
  return ok_status();
}

Expr gather_rows(Expr list, Expr indices, Expr like) {
  return complete(call("TensorListGather", {list, indices, row_shape_of(like)},
                       {{"element_dtype", like.dtype()}}),
                  like);
}

Status scatter_grad(GradientContext& g) {
  const Expr x = g.input(0);
  if (differentiable(x.dtype())) g.set(0, gather_rows(g.gradient(), g.input(1), x));
  return ok_status();
}

Status scatter_into_grad(GradientContext& g) {
  const Expr x = g.input(1), indices = g.input(2);
  Expr list = g.gradient();
  if (differentiable(x.dtype())) {
    g.set(1, gather_rows(list, indices, x));
    list = call("TensorListScatterIntoExistingList", {list, zeros_like(x), indices});
  }
  g.set(0, call("TensorListResize", {list, length_of(g.input(0))}));
  return ok_status();
}

Status wrong_row(int64_t i, const Shape& found, const PartialShape& expected) {
  return invalid_argument("elements must have one shape, but element ", i, " has shape ", found,
                          " where ", expected, " is expected");
}

// Why a list cannot be stacked, in the words of a TensorArray where it stands for one.
Status stack_error(const KernelContext& ctx, const TensorList& list, const Status& why) {
  if (!is_array(ctx.node())) return why;
  if (list.length() == 0) {
    return unimplemented(array_prefix(ctx.node()), "TensorArray has size zero, but element shape ",
                         list.element_shape().rank_known() ? str_cat(list.element_shape())
                                                           : std::string("<unknown>"),
                         " is not fully defined. Currently only static shapes are supported when "
                         "packing zero-size TensorArrays: give it an element_shape.");
  }
  for (int64_t i = 0; i < list.length(); ++i) {
    if (list.get(i).valid()) continue;
    return invalid_argument(array_prefix(ctx.node()), "Could not read from TensorArray index ", i,
                            " because it has not yet been written to: ", why.message());
  }
  return why;
}

class Stack : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const int64_t count, node.attr<int64_t>("num_elements"));
    return std::make_unique<Stack>(count, node.attrs.find(kClearAfterRead) != nullptr);
  }
  Stack(int64_t count, bool clears) : count_(count), clears_(clears) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const TensorList* list, list_input(ctx, 0, ctx.output_type(0)));
    if (count_ != -1 && count_ != list->length()) {
      return invalid_argument("expected a list with ", count_, " elements, got one with ",
                              list->length());
    }
    MR_TRY_ASSIGN(const PartialShape expected, element_shape_input(ctx, 1));
    if (clears_) {
      for (int64_t i = 0; i < list->length(); ++i) {
        MR_TRY(read_once(*list, i, array_prefix(ctx.node())));
      }
    }
    Result<Shape> common = common_shape(*list, expected);
    if (!common.ok()) return stack_error(ctx, *list, common.status());
    const Shape& shape = *common;
    if (!list->element_shape().fully_known()) {
      MR_TRY(list->for_each_set([&](int64_t i, const Tensor& element) {
        return element.shape() == shape ? ok_status() : wrong_row(i, element.shape(), shape);
      }));
    }
    MR_TRY_ASSIGN(const Shape rows, Shape{list->length()}.concat(shape));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, rows));
    join_pieces(ctx, *out, shape.num_elements(), {},
                [list](int64_t i) -> const Tensor& { return list->get(i); });
    return ok_status();
  }

 private:
  const int64_t count_;
  const bool clears_;
};

Status gather(KernelContext& ctx) {
  MR_TRY_ASSIGN(const TensorList* list, list_input(ctx, 0, ctx.output_type(0)));
  MR_TRY(expect_rank(ctx, 1, 1));
  MR_TRY_ASSIGN(const Indices indices, Indices::read(ctx, ctx.input(1)));
  MR_TRY_ASSIGN(const PartialShape expected, element_shape_input(ctx, 2));
  Result<PartialShape> merged = list->element_shape().merge(expected);
  if (!merged.ok()) {
    return invalid_argument("element_shape ", expected, " is not that of the list's elements, ",
                            list->element_shape());
  }
  PartialShape row = std::move(merged).value();
  for (const int64_t i : indices.span()) {
    if (i < 0 || i >= list->length()) {
      return invalid_argument("expected indices in [0, ", list->length(), ") of a list with ",
                              list->length(), " elements, got ", i);
    }
    const Tensor& element = list->get(i);
    if (!element.valid()) continue;
    if (!fits(row, element.shape())) return wrong_row(i, element.shape(), row);
    if (!row.fully_known()) row = element.shape();
  }
  if (!row.fully_known()) {
    return invalid_argument("the shape of elements that are not set must be known, but it is ", row,
                            " and none of the ", indices.size(), " elements to gather is set");
  }
  MR_TRY_ASSIGN(const Shape shape, row.to_shape());
  MR_TRY_ASSIGN(const Shape rows, Shape{ctx.input(1).dim(0)}.concat(shape));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, rows));
  join_pieces(ctx, *out, shape.num_elements(), {},
              [&](int64_t i) -> const Tensor& { return list->get(indices[i]); });
  return ok_status();
}

// An empty list for rows of input `tensor`, with the element_shape of input `shape_input`.
Result<Ref<TensorList>> list_for_rows(const KernelContext& ctx, int tensor, int shape_input) {
  const Tensor& rows = ctx.input(tensor);
  if (rows.rank() == 0) return invalid_argument("a scalar has no rows to make a list of");
  MR_TRY(check_pieces(rows.dim(0)));
  MR_TRY_ASSIGN(PartialShape shape, element_shape_input(ctx, shape_input));
  if (!fits(shape, rows.shape().without_first())) {
    return invalid_argument("a list with elements of shape ", shape,
                            " cannot be made of the rows of a tensor of shape ", rows.shape());
  }
  return make_ref<TensorList>(rows.dtype(), std::move(shape));
}

Status from_tensor(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<TensorList> list, list_for_rows(ctx, 0, 1));
  const Tensor& rows = ctx.input(0);
  for (int64_t i = 0; i < rows.dim(0); ++i) MR_TRY(list->push(rows.row(i)));
  ctx.set_output(0, make_list_tensor(std::move(list)));
  return ok_status();
}

// Puts the rows of input `tensor` into `list`, made long enough, at the indices of input `at`.
Status put_rows(KernelContext& ctx, int tensor, int at, TensorList& list) {
  const Tensor& rows = ctx.input(tensor);
  MR_TRY(expect_rank(ctx, at, 1));
  MR_TRY_ASSIGN(const Indices indices, Indices::read(ctx, ctx.input(at)));
  if (rows.rank() == 0 || rows.dim(0) != indices.size()) {
    return invalid_argument("expected one row of the tensor for each of the ", indices.size(),
                            " indices, got shape ", rows.shape());
  }
  int64_t length = list.length();
  const bool array = is_array(ctx.node());
  const bool fixed = ctx.node().attrs.find(kFixedSize) != nullptr;
  for (const int64_t i : indices.span()) {
    if (array && fixed) MR_TRY(check_write(list, i, array_prefix(ctx.node())));
    if (i < 0) return invalid_argument("indices must not be negative, got ", i);
    length = std::max(length, i + 1);
  }
  MR_TRY(list.resize(length));
  for (int64_t k = 0; k < indices.size(); ++k) {
    if (array) MR_TRY(check_write(list, indices[k], array_prefix(ctx.node())));
    MR_TRY(list.set(indices[k], rows.row(k)));
  }
  return ok_status();
}

Status scatter(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<TensorList> list, list_for_rows(ctx, 0, 2));
  int64_t length = -1;
  if (ctx.num_inputs() > 3) {
    MR_TRY_ASSIGN(length, int32_input(ctx, 3));
    MR_TRY(check_length(length));
  }
  if (length >= 0) MR_TRY(list->resize(length));
  MR_TRY(put_rows(ctx, 0, 1, *list));
  if (length >= 0 && list->length() > length) {
    return invalid_argument("expected indices in [0, ", length, ") of a list with ", length,
                            " elements, got ", list->length() - 1);
  }
  ctx.set_output(0, make_list_tensor(std::move(list)));
  return ok_status();
}

Status scatter_into(KernelContext& ctx) {
  MR_TRY(check_pieces(ctx.input(2).num_elements()));
  MR_TRY_ASSIGN(OwnList own, take_list(ctx, 0, ctx.input(1).dtype()));
  MR_TRY(put_rows(ctx, 1, 2, *own.list));
  ctx.set_output(0, std::move(own.handle));
  return ok_status();
}

}  // namespace

void register_tensor_list_batches(Registry& registry) {
  registry.add({.name = "TensorListStack",
                .doc = "All elements as rows of one tensor. Unset ones are zeros.",
                .inputs = {{"input_handle", "variant"}, {"element_shape", "host(int32)"}},
                .outputs = {{"tensor", "element_dtype"}},
                .types = {{"element_dtype", {}}},
                .attrs = {{"num_elements", "int = -1", "The list's length, where it is known."}},
                .traits = {.cost = 0.3F},
                .shape = stack_shape,
                .gradient = stack_grad});
  registry.add({.name = "TensorListGather",
                .doc = "The elements at some indices as rows of one tensor. Unset ones are zeros.",
                .inputs = {{"input_handle", "variant"},
                           {"indices", "host(int32)"},
                           {"element_shape", "host(int32)"}},
                .outputs = {{"values", "element_dtype"}},
                .types = {{"element_dtype", {}}},
                .traits = {.cost = 0.3F},
                .shape = gather_shape,
                .gradient = gather_grad});
  registry.add({.name = "TensorListFromTensor",
                .doc = "A list of the rows of a tensor.",
                .inputs = {{"tensor", "element_dtype"}, {"element_shape", "host(shape_type)"}},
                .outputs = {{"output_handle", "variant"}},
                .types = {{"element_dtype", {}}, {"shape_type", kIndexTypes}},
                .traits = {.retains = 1},
                .shape = from_tensor_shape,
                .gradient = from_tensor_grad});
  registry.add({.name = "TensorListScatter",
                .doc = "A list with the rows of a tensor at some indices, as long as it must be.",
                .inputs = {{"tensor", "element_dtype"},
                           {"indices", "host(int32)"},
                           {"element_shape", "host(shape_type)"}},
                .outputs = {{"output_handle", "variant"}},
                .types = {{"element_dtype", {}}, {"shape_type", kIndexTypes}},
                .traits = {.retains = 1},
                .shape = scatter_shape,
                .gradient = scatter_grad});
  registry.add({.name = "TensorListScatterV2",
                .doc = "A list of num_elements elements (-1: as many as it must have), with the "
                       "rows of a tensor at some indices.",
                .inputs = {{"tensor", "element_dtype"},
                           {"indices", "host(int32)"},
                           {"element_shape", "host(shape_type)"},
                           {"num_elements", "host(int32)"}},
                .outputs = {{"output_handle", "variant"}},
                .types = {{"element_dtype", {}}, {"shape_type", kIndexTypes}},
                .traits = {.retains = 1},
                .shape = scatter_shape,
                .gradient = scatter_grad});
  registry.add({.name = "TensorListScatterIntoExistingList",
                .doc = "The list with the rows of a tensor at some indices, longer where it must "
                       "be.",
                .inputs = {{"input_handle", "variant"},
                           {"tensor", "element_dtype"},
                           {"indices", "host(int32)"}},
                .outputs = {{"output_handle", "variant"}},
                .types = {{"element_dtype", {}}},
                .traits = {.may_alias = 1, .retains = 2},
                .shape = scatter_into_shape,
                .gradient = scatter_into_grad});
  registry.kernel<Stack>("TensorListStack", DeviceKind::kCpu);
  registry.kernel("TensorListGather", DeviceKind::kCpu, gather);
  registry.kernel("TensorListFromTensor", DeviceKind::kCpu, from_tensor);
  registry.kernel("TensorListScatter", DeviceKind::kCpu, scatter);
  registry.kernel("TensorListScatterV2", DeviceKind::kCpu, scatter);
  registry.kernel("TensorListScatterIntoExistingList", DeviceKind::kCpu, scatter_into);
}

}  // namespace millrace
