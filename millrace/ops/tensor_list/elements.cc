// Single elements of lists: pushed, popped, read, replaced; one for each of many lists.

#include <optional>
#include <utility>

#include "millrace/kernel/registry.h"
#include "millrace/ops/tensor_list/list_ops.h"

namespace millrace {
namespace {

Status push_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape list, list_shape(c, 0, c.input_type(1)));
  MR_TRY(check_fits(list, c.input(1)));
  set_list(c, 0, c.input_type(1), std::move(list));
  return ok_status();
}

Status pop_shape(ShapeContext& c) {
  const DType dtype = c.output_type(1);
  MR_TRY_ASSIGN(PartialShape element, list_shape(c, 0, dtype, 1));
  MR_TRY_ASSIGN(PartialShape list, list_shape(c, 0, dtype));
  set_list(c, 0, dtype, std::move(list));
  c.set_output(1, std::move(element));
  return ok_status();
}

Status get_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape element, list_shape(c, 0, c.output_type(0), 2));
  MR_TRY(c.with_rank(1, 0).status());
  const std::optional<int64_t> index = c.input_scalar(1);
  if (index && *index < 0) return invalid_argument("index must not be negative, got ", *index);
  c.set_output(0, std::move(element));
  return ok_status();
}

Status set_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape list, list_shape(c, 0, c.input_type(2)));
  MR_TRY(c.with_rank(1, 0).status());
  const std::optional<int64_t> index = c.input_scalar(1);
  if (index && *index < 0) return invalid_argument("index must not be negative, got ", *index);
  MR_TRY(check_fits(list, c.input(2)));
  set_list(c, 0, c.input_type(2), std::move(list));
  return ok_status();
}

Status push_batch_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape lists, c.with_rank(0, 1));
  MR_TRY_ASSIGN(const PartialShape tensor, c.with_rank_at_least(1, 1));
  const PartialShape rows = tensor.rank_known() ? PartialShape{tensor.dim(0)} : PartialShape();
  Result<PartialShape> both = lists.merge(rows);
  if (!both.ok()) {
    return invalid_argument("expected a row of the tensor for each list, got ", tensor, " and ",
                            lists, " lists");
  }
  c.set_output(0, std::move(both).value());
  PartialShape element;
  const std::vector<ResourceHandle::DTypeAndShape>& known = c.input_facts(0).resource;
  if (!known.empty()) {
    if (known[0].dtype != c.input_type(1)) {
      return invalid_argument("input 0 must hold lists with elements of type ", c.input_type(1),
                              ", got ", known[0].dtype);
    }
    element = known[0].shape;
    MR_TRY(check_fits(element, without_first(tensor)));
  }
  c.set_output_resource(0, {{c.input_type(1), std::move(element)}});
  return ok_status();
}

Status push_grad(GradientContext& g) {
  const Expr x = g.input(1);
  const std::vector<Expr> popped =
      call_multi("TensorListPopBack", {g.gradient(), shape_of(x)}, {{"element_dtype", x.dtype()}});
  if (popped.empty()) return ok_status();
  g.set(0, popped[0]);
  if (differentiable(x.dtype())) g.set(1, complete(popped[1], x));
  return ok_status();
}

Status pop_grad(GradientContext& g) {
  if (differentiable(g.output(1).dtype())) {
    g.set(0, call("TensorListPushBack", {g.gradient(0), g.gradient(1)}));
  } else {
    g.set(0, call("TensorListResize", {g.gradient(0), length_of(g.input(0))}));
  }
  return ok_status();
}

Status get_grad(GradientContext& g) {
  const Expr dx = g.gradient();
  if (!differentiable(dx.dtype())) return ok_status();
  g.set(0, call("TensorListSetItem", {reserve_like(g.input(0), dx.dtype()), g.input(1), dx}));
  return ok_status();
}

Status set_grad(GradientContext& g) {
  MR_TRY_ASSIGN(const bool resizes, g.attr<bool>("resize_if_index_out_of_bounds"));
  const Expr index = g.input(1), x = g.input(2);
  Expr list = g.gradient();
  if (differentiable(x.dtype())) {
    g.set(2, complete(call("TensorListGetItem", {list, index, shape_of(x)},
                           {{"element_dtype", x.dtype()}}),
                      x));
    list = call("TensorListSetItem", {list, index, zeros_like(x)});
  }
  if (resizes) list = call("TensorListResize", {list, length_of(g.input(0))});
  g.set(0, list);
  return ok_status();
}

Status push_batch_grad(GradientContext& g) {
  const Expr x = g.input(1);
  const PartialShape lists = g.input(0).shape(), rows = x.shape();
  const int64_t n = lists.rank() == 1 && lists.dim_known(0) ? lists.dim(0)
                    : rows.rank() > 0                       ? rows.dim(0)
                                                            : PartialShape::kUnknownDim;
  if (n < 1) {
    return unimplemented(
        "the gradient of TensorListPushBackBatch is known for a known number of "
        "lists, at least one, not for lists of shape ",
        lists);
  }
  const Expr shape = row_shape_of(x);
  std::vector<Expr> rest, elements;
  for (Expr list : call_multi("Unpack", {g.gradient()}, {{"num", n}, {"axis", int64_t{0}}})) {
    const std::vector<Expr> popped =
        call_multi("TensorListPopBack", {list, shape}, {{"element_dtype", x.dtype()}});
    if (popped.empty()) return ok_status();
    rest.push_back(popped[0]);
    elements.push_back(popped[1]);
  }
  g.set(0, call("Pack", rest));
  if (differentiable(x.dtype())) g.set(1, complete(call("Pack", elements), x));
  return ok_status();
}

Status push_back(KernelContext& ctx) {
  MR_TRY_ASSIGN(OwnList own, take_list(ctx, 0, ctx.input(1).dtype()));
  MR_TRY(own.list->push(ctx.take_input(1).tensor));
  ctx.set_output(0, std::move(own.handle));
  return ok_status();
}

// `element` of `list` for output `output`: zeros when it is unset. Input `shape_input` is the
// element_shape.
Status output_element(KernelContext& ctx, const TensorList& list, Tensor element, int shape_input,
                      int output) {
  if (element.valid()) {
    MR_TRY(check_element_shape(ctx, shape_input, element.shape()));
  } else {
    MR_TRY_ASSIGN(const PartialShape expected, element_shape_input(ctx, shape_input));
    MR_TRY_ASSIGN(const Shape shape, common_shape(list, expected));
    MR_TRY_ASSIGN(element, Tensor::zeros(list.element_dtype(), shape));
  }
  ctx.set_output(output, std::move(element));
  return ok_status();
}

Status pop_back(KernelContext& ctx) {
  MR_TRY_ASSIGN(OwnList own, take_list(ctx, 0, ctx.output_type(1)));
  MR_TRY_ASSIGN(Tensor element, own.list->pop());
  MR_TRY(output_element(ctx, *own.list, std::move(element), 1, 1));
  ctx.set_output(0, std::move(own.handle));
  return ok_status();
}

class GetItem : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    return std::make_unique<GetItem>(node);
  }
  explicit GetItem(const KernelNode& node)
      : clears_(node.attrs.find(kClearAfterRead) != nullptr), is_array_(is_array(node)) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const TensorList* list, list_input(ctx, 0, ctx.output_type(0)));
    MR_TRY_ASSIGN(const int64_t index, int32_input(ctx, 1));
    if (index < 0 || index >= list->length()) {
      if (is_array_) {
        return invalid_argument(array_prefix(ctx.node()), "Tried to read from index ", index,
                                " but array size is: ", list->length());
      }
      return invalid_argument("expected an index in [0, ", list->length(), ") of a list with ",
                              list->length(), " elements, got ", index);
    }
    if (clears_) MR_TRY(read_once(*list, index, array_prefix(ctx.node())));
    Status status = output_element(ctx, *list, list->get(index), 2, 0);
    if (status.ok() || !is_array_ || list->get(index).valid()) return status;
    return invalid_argument(array_prefix(ctx.node()), "Could not read from TensorArray index ",
                            index, " because it has not yet been written to: ", status.message());
  }

 private:
  const bool clears_;
  const bool is_array_;
};

class SetItem : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool resizes, node.attr<bool>("resize_if_index_out_of_bounds"));
    return std::make_unique<SetItem>(resizes, is_array(node));
  }
  SetItem(bool resizes, bool is_array) : resizes_(resizes), is_array_(is_array) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const int64_t index, int32_input(ctx, 1));
    MR_TRY_ASSIGN(OwnList own, take_list(ctx, 0, ctx.input(2).dtype()));
    if (resizes_ && index >= own.list->length()) MR_TRY(own.list->resize(index + 1));
    if (is_array_) MR_TRY(check_write(*own.list, index, array_prefix(ctx.node())));
    MR_TRY(own.list->set(index, ctx.take_input(2).tensor));
    ctx.set_output(0, std::move(own.handle));
    return ok_status();
  }

 private:
  const bool resizes_;
  const bool is_array_;
};

Status push_back_batch(KernelContext& ctx) {
  const Tensor rows = ctx.input(1);
  MR_TRY(expect_rank(ctx, 0, 1));
  if (rows.rank() == 0 || rows.dim(0) != ctx.input(0).dim(0)) {
    return invalid_argument("expected a row of the tensor for each of the ", ctx.input(0).dim(0),
                            " lists, got shape ", rows.shape());
  }
  Tensor lists = ctx.take_input(0).tensor;
  if (!lists.writable()) {
    MR_TRY_ASSIGN(lists, lists.clone());
  }
  for (int64_t i = 0; i < rows.dim(0); ++i) {
    Variant& variant = lists.mutable_data<Variant>()[static_cast<size_t>(i)];
    const TensorList* list = as_tensor_list(variant);
    if (list == nullptr) {
      return invalid_argument("element ", i, " of input 0 must be a list of tensors");
    }
    if (!variant.object->unique()) variant.object = list->share();
    const Status pushed = static_cast<TensorList*>(variant.object.get())->push(rows.row(i));
    if (!pushed.ok()) return pushed.with_prefix(str_cat("list ", i));
  }
  ctx.set_output(0, std::move(lists));
  return ok_status();
}

}  // namespace

void register_tensor_list_elements(Registry& registry) {
  registry.add({.name = "TensorListPushBack",
                .doc = "The list with one more element at its end.",
                .inputs = {{"input_handle", "variant"}, {"tensor", "element_dtype"}},
                .outputs = {{"output_handle", "variant"}},
                .types = {{"element_dtype", {}}},
                .traits = {.may_alias = 1, .retains = 2},
                .shape = push_shape,
                .gradient = push_grad});
  registry.add({.name = "TensorListPopBack",
                .doc = "The list without its last element, and that element. An unset one is "
                       "zeros of element_shape.",
                .inputs = {{"input_handle", "variant"}, {"element_shape", "host(int32)"}},
                .outputs = {{"output_handle", "variant"}, {"tensor", "element_dtype"}},
                .types = {{"element_dtype", {}}},
                .traits = {.may_alias = 1},
                .shape = pop_shape,
                .gradient = pop_grad});
  registry.add({.name = "TensorListGetItem",
                .doc = "One element. An unset one is zeros of element_shape.",
                .inputs = {{"input_handle", "variant"},
                           {"index", "host(int32)"},
                           {"element_shape", "host(int32)"}},
                .outputs = {{"item", "element_dtype"}},
                .types = {{"element_dtype", {}}},
                .shape = get_shape,
                .gradient = get_grad});
  registry.add(
      {.name = "TensorListSetItem",
       .doc = "The list with one element replaced.",
       .inputs = {{"input_handle", "variant"}, {"index", "host(int32)"}, {"item", "element_dtype"}},
       .outputs = {{"output_handle", "variant"}},
       .types = {{"element_dtype", {}}},
       .attrs = {{"resize_if_index_out_of_bounds", "bool = false",
                  "An index past the end makes the list longer."}},
       .traits = {.may_alias = 1, .retains = 4},
       .shape = set_shape,
       .gradient = set_grad});
  registry.add({.name = "TensorListPushBackBatch",
                .doc = "Many lists, each with a row of the tensor as one more element at its end.",
                .inputs = {{"input_handles", "variant"}, {"tensor", "element_dtype"}},
                .outputs = {{"output_handles", "variant"}},
                .types = {{"element_dtype", {}}},
                .traits = {.may_alias = 1, .retains = 2},
                .shape = push_batch_shape,
                .gradient = push_batch_grad});
  registry.kernel("TensorListPushBack", DeviceKind::kCpu, push_back);
  registry.kernel("TensorListPopBack", DeviceKind::kCpu, pop_back);
  registry.kernel<GetItem>("TensorListGetItem", DeviceKind::kCpu);
  registry.kernel<SetItem>("TensorListSetItem", DeviceKind::kCpu);
  registry.kernel("TensorListPushBackBatch", DeviceKind::kCpu, push_back_batch);
}

}  // namespace millrace
