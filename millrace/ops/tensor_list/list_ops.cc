#include "millrace/ops/tensor_list/list_ops.h"

#include <algorithm>
#include <utility>

#include "millrace/ops/array/host_ints.h"
#include "millrace/ops/element.h"

namespace millrace {

Result<PartialShape> list_shape(const ShapeContext& c, int i, DType dtype) {
  MR_TRY(c.with_rank(i, 0).status());
  const std::vector<ResourceHandle::DTypeAndShape>& known = c.input_facts(i).resource;
  if (known.empty()) return PartialShape();
  if (known.size() != 1) {
    return invalid_argument("input ", i, " must be a list of tensors, got something with ",
                            known.size(), " parts");
  }
  if (known[0].dtype != dtype && dtype != DType::kInvalid) {
    return invalid_argument("input ", i, " must be a list with elements of type ", dtype,
                            ", got one with ", known[0].dtype);
  }
  return known[0].shape;
}

Result<PartialShape> list_shape(const ShapeContext& c, int i, DType dtype, int shape_input) {
  MR_TRY_ASSIGN(PartialShape list, list_shape(c, i, dtype));
  MR_TRY_ASSIGN(PartialShape expected, c.input_as_shape(shape_input));
  Result<PartialShape> both = list.merge(expected);
  if (both.ok()) return both;
  return invalid_argument("element_shape ", expected, " is not that of the list's elements, ",
                          list);
}

void set_list(ShapeContext& c, int i, DType dtype, PartialShape shape) {
  c.set_output(i, PartialShape::scalar());
  c.set_output_resource(i, {{dtype, std::move(shape)}});
}

Status check_fits(const PartialShape& list, const PartialShape& element) {
  if (list.compatible(element)) return ok_status();
  return invalid_argument("expected an element of shape ", list,
                          ", that of the list's elements, got shape ", element);
}

Result<const TensorList*> list_input(const KernelContext& ctx, int i, DType dtype) {
  const Tensor& handle = ctx.input(i);
  const TensorList* list = nullptr;
  if (handle.dtype() == DType::kVariant && handle.rank() == 0) {
    list = as_tensor_list(handle.item<Variant>());
  }
  if (list == nullptr) {
    return invalid_argument("input ", i, " must be a list of tensors, got ", handle);
  }
  if (list->element_dtype() != dtype && dtype != DType::kInvalid) {
    return invalid_argument("input ", i, " must be a list with elements of type ", dtype,
                            ", got one with ", list->element_dtype());
  }
  return list;
}

Result<OwnList> take_list(KernelContext& ctx, int i, DType dtype) {
  MR_TRY(list_input(ctx, i, dtype).status());
  Tensor handle = ctx.take_input(i).tensor;
  if (!handle.writable() || !handle.item<Variant>().object->unique()) {
    handle = make_list_tensor(as_tensor_list(handle.item<Variant>())->share());
  }
  auto* list = static_cast<TensorList*>(handle.item<Variant>().object.get());
  return OwnList{std::move(handle), list};
}

Result<PartialShape> element_shape_input(const KernelContext& ctx, int i) {
  const Tensor& dims = ctx.input(i);
  if (dims.rank() == 0 && int_at(dims, 0) == -1) return PartialShape::unknown();
  if (dims.rank() != 1) {
    return invalid_argument("element_shape must be a vector of sizes, or the scalar -1, got ",
                            dims);
  }
  MR_TRY_ASSIGN(const std::vector<int64_t> sizes, ctx.int_vector_input(i));
  return PartialShape::make(sizes);
}

Status check_element_shape(const KernelContext& ctx, int i, const Shape& shape) {
  const Tensor& dims = ctx.input(i);
  bool same = dims.rank() == 0 ? int_at(dims, 0) == -1
                               : dims.rank() == 1 && dims.num_elements() == shape.rank();
  for (int d = 0; same && dims.rank() == 1 && d < shape.rank(); ++d) {
    const int64_t expected = int_at(dims, d);
    same = expected == -1 || expected == shape.dim(d);
  }
  if (same) return ok_status();
  MR_TRY_ASSIGN(const PartialShape expected, element_shape_input(ctx, i));
  return invalid_argument("element_shape is ", expected, ", but the element has shape ", shape);
}

Result<Shape> common_shape(const TensorList& list, const PartialShape& expected) {
  Result<PartialShape> merged = list.element_shape().merge(expected);
  if (!merged.ok()) {
    return invalid_argument("element_shape ", expected, " is not that of the list's elements, ",
                            list.element_shape());
  }
  PartialShape shape = std::move(merged).value();
  if (!shape.fully_known()) {
    MR_TRY(list.for_each_set([&](int64_t i, const Tensor& element) -> Status {
      if (!fits(shape, element.shape())) {
        return invalid_argument("elements must have one shape, but element ", i, " has shape ",
                                element.shape(), " where ", shape, " is expected");
      }
      if (!shape.fully_known()) shape = element.shape();
      return ok_status();
    }));
  }
  if (shape.fully_known()) return shape.to_shape();
  return invalid_argument("the shape of elements that are not set must be known, but it is ", shape,
                          " and no element is set");
}

bool is_array(const KernelNode& node) { return node.attrs.find(kArrayName) != nullptr; }

std::string array_prefix(const KernelNode& node) {
  Result<std::string> name = node.attr<std::string>(kArrayName);
  return name.ok() ? str_cat("TensorArray ", *name, ": ") : "";
}

Status check_write(const TensorList& list, int64_t i, std::string_view prefix) {
  if (i < 0 || i >= list.length()) {
    return invalid_argument(prefix, "Tried to write to index ", i,
                            " but array is not resizeable and size is: ", list.length());
  }
  if (!list.get(i).valid()) return ok_status();
  return invalid_argument(prefix, "Could not write to TensorArray index ", i,
                          " because it has already been written to.");
}

Status read_once(const TensorList& list, int64_t i, std::string_view prefix) {
  if (list.mark_read(i)) return ok_status();
  return invalid_argument(prefix, "Could not read index ", i,
                          " twice because it was cleared after a previous read (perhaps try "
                          "setting clear_after_read = false?)");
}

Result<int64_t> int32_input(const KernelContext& ctx, int i) {
  MR_TRY(expect_rank(ctx, i, 0));
  return ctx.int_scalar_input(i);
}

void join_pieces(const KernelContext& ctx, Tensor& out, int64_t size,
                 std::span<const int64_t> begins, FunctionRef<const Tensor&(int64_t)> piece) {
  if (out.num_elements() == 0) return;
  const auto begin_of = [&](int64_t i) {
    return begins.empty() ? i * size : begins[static_cast<size_t>(i)];
  };
  const DType dtype = out.dtype();
  with_element(dtype, [&]<class T>() {
    T* const to = static_cast<T*>(out.mutable_raw());
    ctx.parallel_for(out.num_elements(), copy_cost(dtype), [&](int64_t at, int64_t end) {
      int64_t i = begins.empty()
                      ? at / size
                      : std::upper_bound(begins.begin(), begins.end(), at) - begins.begin() - 1;
      for (; at < end; ++i) {
        const int64_t stop = std::min(end, begin_of(i + 1));
        const Tensor& tensor = piece(i);
        if (!tensor.valid()) {
          std::fill(to + at, to + stop, T{});
        } else {
          const T* from = static_cast<const T*>(tensor.raw()) + (at - begin_of(i));
          std::copy(from, from + (stop - at), to + at);
        }
        at = stop;
      }
    });
  });
}

Status check_pieces(int64_t count) {
  if (count <= kMaxPieces) return ok_status();
  return resource_exhausted("a list can be made of ", kMaxPieces, " parts of a tensor, not ",
                            count);
}

bool differentiable(DType dtype) {
  return kFloating.contains(dtype) || kComplex.contains(dtype) || dtype == DType::kVariant;
}

Expr complete(Expr gradient, Expr x) {
  if (x.dtype() != DType::kVariant) return gradient;
  return call("AddN", {gradient, zeros_like(x)});
}

Expr length_of(Expr list) { return call("TensorListLength", {list}); }

Expr element_shape_of(Expr list) {
  return call("TensorListElementShape", {list}, {{"shape_type", DType::kInt32}});
}

Expr reserve_like(Expr list, DType dtype) {
  return call("TensorListReserve", {element_shape_of(list), length_of(list)},
              {{"element_dtype", dtype}});
}

Expr row_shape_of(Expr x) {
  if (!x.valid()) return x;
  OpBuilder& b = *x.builder();
  return call("Slice", {shape_of(x), int32_vector(b, {1}), int32_vector(b, {-1})});
}

}  // namespace millrace
