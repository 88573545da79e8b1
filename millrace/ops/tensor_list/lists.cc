// Making lists, their length and element shape, lists of other lengths, lists joined.

#include <limits>
#include <optional>
#include <utility>

#include "millrace/kernel/registry.h"
#include "millrace/ops/tensor_list/list_ops.h"

namespace millrace {
namespace {

Status new_list_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(DType dtype, c.attr<DType>("element_dtype"));
  MR_TRY_ASSIGN(PartialShape shape, c.input_as_shape(0));
  MR_TRY(c.with_rank(1, 0).status());
  set_list(c, 0, dtype, std::move(shape));
  return ok_status();
}

Status reserve_shape(ShapeContext& c) {
  const std::optional<int64_t> length = c.input_scalar(1);
  if (length && *length < 0) {
    return invalid_argument("num_elements must not be negative, got ", *length);
  }
  return new_list_shape(c);
}

Status length_shape(ShapeContext& c) {
  MR_TRY(list_shape(c, 0, DType::kInvalid).status());
  return shape_rules::scalar(c);
}

Status element_shape_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape element, list_shape(c, 0, DType::kInvalid));
  if (!element.rank_known()) return ok_status();
  c.set_output(0, PartialShape{element.rank()});
  PartialValue value;
  for (int64_t dim : element.dims()) {
    value.elements.push_back(dim < 0 ? std::nullopt : std::optional<int64_t>(dim));
  }
  c.outputs()[0].value = std::move(value);
  return ok_status();
}

Status resize_shape(ShapeContext& c) {
  MR_TRY(list_shape(c, 0, DType::kInvalid).status());
  MR_TRY(c.with_rank(1, 0).status());
  const std::optional<int64_t> size = c.input_scalar(1);
  if (size && *size < 0) return invalid_argument("size must not be negative, got ", *size);
  c.set_output(0, PartialShape::scalar());
  c.set_output_resource(0, c.input_facts(0).resource);
  return ok_status();
}

Status concat_lists_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(DType dtype, c.attr<DType>("element_dtype"));
  MR_TRY(shape_rules::merged(c));
  PartialShape element;
  for (int i = 0; i < 2; ++i) {
    const std::vector<ResourceHandle::DTypeAndShape>& known = c.input_facts(i).resource;
    if (known.empty()) continue;
    Result<PartialShape> both = element.merge(known[0].shape);
    if (known[0].dtype != dtype || !both.ok()) {
      return invalid_argument("input ", i, " must hold lists with elements of ", dtype, ' ',
                              element, ", got ", known[0].dtype, ' ', known[0].shape);
    }
    element = std::move(both).value();
  }
  c.set_output_resource(0, {{dtype, std::move(element)}});
  return ok_status();
}

Status resize_grad(GradientContext& g) {
  g.set(0, call("TensorListResize", {g.gradient(), length_of(g.input(0))}));
  return ok_status();
}

Status concat_lists_grad(GradientContext& g) {
  if (g.input(0).shape().rank() != 0 && g.input(1).shape().rank() != 0) {
    return unimplemented(
        "the gradient of TensorListConcatLists is known for two single lists, not "
        "for tensors of lists of shape ",
        g.input(0).shape());
  }
  MR_TRY_ASSIGN(const DType dtype, g.attr<DType>("element_dtype"));
  OpBuilder& b = g.builder();
  const Expr dy = g.gradient(), length = length_of(g.input(0));
  g.set(0, call("TensorListResize", {dy, length}));
  const Expr shape = element_shape_of(g.input(1));
  const Expr indices = range(length, length_of(dy), int32_scalar(b, 1));
  const Expr rows = call("TensorListGather", {dy, indices, shape}, {{"element_dtype", dtype}});
  g.set(1, call("TensorListFromTensor", {rows, shape}));
  return ok_status();
}

// EmptyTensorList and TensorListReserve.
template <bool kReserve>
class NewList : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const DType dtype, node.attr<DType>("element_dtype"));
    return std::make_unique<NewList>(dtype);
  }
  explicit NewList(DType dtype) : dtype_(dtype) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(PartialShape shape, element_shape_input(ctx, 0));
    MR_TRY_ASSIGN(const int64_t size, int32_input(ctx, 1));
    Ref<TensorList> list =
        make_ref<TensorList>(dtype_, std::move(shape), kReserve ? TensorList::kUnlimited : size);
    if (kReserve) {
      if (size < 0) return invalid_argument("num_elements must not be negative, got ", size);
      MR_TRY(list->resize(size));
    }
    ctx.set_output(0, make_list_tensor(std::move(list)));
    return ok_status();
  }

 private:
  const DType dtype_;
};

Status list_length(KernelContext& ctx) {
  MR_TRY_ASSIGN(const TensorList* list, list_input(ctx, 0, DType::kInvalid));
  ctx.set_output(0, Tensor::scalar(static_cast<int32_t>(list->length())));
  return ok_status();
}

template <class T>
Status write_shape(KernelContext& ctx, const PartialShape& shape) {
  if (!shape.rank_known()) {
    ctx.set_output(0, Tensor::scalar(T{-1}));
    return ok_status();
  }
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape{shape.rank()}));
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape.dim(i) > std::numeric_limits<T>::max()) {
      return invalid_argument("size ", shape.dim(i), " of the list's elements of shape ", shape,
                              " does not fit in ", dtype_of<T>);
    }
    out->mutable_data<T>()[static_cast<size_t>(i)] = static_cast<T>(shape.dim(i));
  }
  return ok_status();
}

Status list_element_shape(KernelContext& ctx) {
  MR_TRY_ASSIGN(const TensorList* list, list_input(ctx, 0, DType::kInvalid));
  return ctx.output_type(0) == DType::kInt32 ? write_shape<int32_t>(ctx, list->element_shape())
                                             : write_shape<int64_t>(ctx, list->element_shape());
}

Status resize_list(KernelContext& ctx) {
  MR_TRY_ASSIGN(const int64_t size, int32_input(ctx, 1));
  MR_TRY_ASSIGN(OwnList own, take_list(ctx, 0, DType::kInvalid));
  MR_TRY(own.list->resize(size));
  ctx.set_output(0, std::move(own.handle));
  return ok_status();
}

Result<Ref<TensorList>> joined(const TensorList& a, const TensorList& b) {
  Result<PartialShape> shape = a.element_shape().merge(b.element_shape());
  if (!shape.ok()) {
    return invalid_argument("lists to join must have elements of one shape, got ",
                            a.element_shape(), " and ", b.element_shape());
  }
  MR_TRY_ASSIGN(Ref<TensorList> list, a.share_as(std::move(shape).value()));
  MR_TRY(list->resize(a.length() + b.length()));
  MR_TRY(b.for_each_set(
      [&](int64_t i, const Tensor& element) { return list->set(a.length() + i, element); }));
  return list;
}

class ConcatLists : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const DType dtype, node.attr<DType>("element_dtype"));
    return std::make_unique<ConcatLists>(dtype);
  }
  explicit ConcatLists(DType dtype) : dtype_(dtype) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY(expect_same_shape(ctx, 0, 1));
    MR_TRY_ASSIGN(Tensor out, Tensor::allocate(DType::kVariant, ctx.input(0).shape()));
    for (size_t k = 0; k < static_cast<size_t>(out.num_elements()); ++k) {
      const TensorList* lists[2];
      for (int i = 0; i < 2; ++i) {
        lists[i] = as_tensor_list(ctx.input(i).data<Variant>()[k]);
        if (lists[i] == nullptr || lists[i]->element_dtype() != dtype_) {
          return invalid_argument("element ", k, " of input ", i,
                                  " must be a list with elements of type ", dtype_, ", got ",
                                  lists[i] == nullptr ? std::string("something else")
                                                      : dtype_name(lists[i]->element_dtype()));
        }
      }
      MR_TRY_ASSIGN(Ref<TensorList> list, joined(*lists[0], *lists[1]));
      out.mutable_data<Variant>()[k].object = std::move(list);
    }
    ctx.set_output(0, std::move(out));
    return ok_status();
  }

 private:
  const DType dtype_;
};

}  // namespace

void register_tensor_list_lists(Registry& registry) {
  static const Status& decoder =
      *new Status(register_variant_decoder(TensorList::kTypeName, TensorList::decode));
  MR_CHECK_OK(decoder);
  registry.add(
      {.name = "EmptyTensorList",
       .doc = "A list without elements, which will have this type and shape.",
       .inputs = {{"element_shape", "host(shape_type)"}, {"max_num_elements", "host(int32)"}},
       .outputs = {{"handle", "variant"}},
       .types = {{"element_dtype", {}}, {"shape_type", kIndexTypes}},
       .traits = {.cannot_differentiate = true},
       .shape = new_list_shape});
  registry.add({.name = "TensorListReserve",
                .doc = "A list of num_elements elements, none of which is set.",
                .inputs = {{"element_shape", "host(shape_type)"}, {"num_elements", "host(int32)"}},
                .outputs = {{"handle", "variant"}},
                .types = {{"element_dtype", {}}, {"shape_type", kIndexTypes}},
                .traits = {.cannot_differentiate = true},
                .shape = reserve_shape});
  registry.add({.name = "TensorListLength",
                .doc = "The number of elements.",
                .inputs = {{"input_handle", "variant"}},
                .outputs = {{"length", "host(int32)"}},
                .traits = {.cannot_differentiate = true},
                .shape = length_shape});
  registry.add({.name = "TensorListElementShape",
                .doc = "The shape that the list declares for its elements: -1 where a size is not "
                       "known, the scalar -1 where the rank is not.",
                .inputs = {{"input_handle", "variant"}},
                .outputs = {{"element_shape", "host(shape_type)"}},
                .types = {{"shape_type", kIndexTypes}},
                .traits = {.cannot_differentiate = true},
                .shape = element_shape_shape});
  registry.add({.name = "TensorListResize",
                .doc = "The list with elements dropped, or unset ones added, at its end.",
                .inputs = {{"input_handle", "variant"}, {"size", "host(int32)"}},
                .outputs = {{"output_handle", "variant"}},
                .traits = {.may_alias = 1},
                .shape = resize_shape,
                .gradient = resize_grad});
  registry.add({.name = "TensorListConcatLists",
                .doc = "The elements of one list and then those of another, for each pair of lists "
                       "in two tensors of one shape.",
                .inputs = {{"input_a", "variant"}, {"input_b", "variant"}},
                .outputs = {{"output", "variant"}},
                .types = {{"element_dtype", {}}},
                .shape = concat_lists_shape,
                .gradient = concat_lists_grad});
  registry.kernel<NewList<false>>("EmptyTensorList", DeviceKind::kCpu);
  registry.kernel<NewList<true>>("TensorListReserve", DeviceKind::kCpu);
  registry.kernel("TensorListLength", DeviceKind::kCpu, list_length);
  registry.kernel("TensorListElementShape", DeviceKind::kCpu, list_element_shape);
  registry.kernel("TensorListResize", DeviceKind::kCpu, resize_list);
  registry.kernel<ConcatLists>("TensorListConcatLists", DeviceKind::kCpu);
}

}  // namespace millrace
