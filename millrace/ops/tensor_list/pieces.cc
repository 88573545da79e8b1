// Many elements of a list at once, as pieces of one tensor along its first dimension.

#include <utility>

#include "millrace/kernel/registry.h"
#include "millrace/ops/tensor_list/list_ops.h"

namespace millrace {
namespace {

Status check_piece_shape(const PartialShape& element) {
  if (element.rank() != 0) return ok_status();
  return invalid_argument("elements to join must be vectors at least, but they are scalars");
}

Status joined_shape(ShapeContext& c, const PartialShape& element) {
  MR_TRY(check_piece_shape(element));
  c.set_output(0, with_first(PartialShape::kUnknownDim, without_first(element)));
  c.set_output(1, PartialShape::of_rank(1));
  return ok_status();
}

Status concat_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape list, list_shape(c, 0, c.output_type(0)));
  MR_TRY_ASSIGN(const PartialShape expected, c.attr<PartialShape>("element_shape"));
  Result<PartialShape> both = list.merge(expected);
  if (both.ok()) return joined_shape(c, *both);
  return invalid_argument("element_shape ", expected, " is not that of the list's elements, ",
                          list);
}

Status concat_v2_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(2, 1).status());
  MR_TRY_ASSIGN(const PartialShape element, list_shape(c, 0, c.output_type(0), 1));
  return joined_shape(c, element);
}

Status split_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape tensor, c.with_rank_at_least(0, 1));
  MR_TRY_ASSIGN(PartialShape element, c.input_as_shape(1));
  MR_TRY(check_piece_shape(element));
  MR_TRY(c.with_rank(2, 1).status());
  if (!without_first(element).compatible(without_first(tensor))) {
    return invalid_argument("tensor shape ", tensor, " is not compatible with element_shape ",
                            element, " of its pieces");
  }
  set_list(c, 0, c.input_type(0), std::move(element));
  return ok_status();
}

Status concat_grad(GradientContext& g) {
  const Expr dx = g.gradient(0);
  if (!differentiable(dx.dtype())) return ok_status();
  g.set(0, call("TensorListSplit", {dx, element_shape_of(g.input(0)), g.output(1)}));
  return ok_status();
}

Status split_grad(GradientContext& g) {
  const Expr x = g.input(0);
  if (!differentiable(x.dtype())) return ok_status();
  const Expr shape = concat({int32_vector(g.builder(), {-1}), row_shape_of(x)}, 0);
  const std::vector<Expr> joined = call_multi(
      "TensorListConcatV2", {g.gradient(), shape, g.input(2)}, {{"element_dtype", x.dtype()}});
  if (!joined.empty()) g.set(0, complete(joined[0], x));
  return ok_status();
}

// What is known of the elements of a list to be joined.
struct Pieces {
  Shape rest;          // behind the first dimension
  int64_t first = -1;  // its size, where all have one
};

Result<Pieces> pieces_of(const TensorList& list, const PartialShape& expected) {
  Result<PartialShape> merged = list.element_shape().merge(expected);
  if (!merged.ok()) {
    return invalid_argument("element_shape ", expected, " is not that of the list's elements, ",
                            list.element_shape());
  }
  MR_TRY(check_piece_shape(*merged));
  const int64_t declared = merged->rank_known() ? merged->dim(0) : PartialShape::kUnknownDim;
  PartialShape rest = without_first(*merged);
  int64_t first = declared;
  bool any = false;
  MR_TRY(list.for_each_set([&](int64_t i, const Tensor& element) -> Status {
    const Shape& shape = element.shape();
    if (shape.rank() == 0 || !fits(rest, shape.without_first()) ||
        (declared >= 0 && shape.dim(0) != declared)) {
      return invalid_argument("elements to join must have shape ", with_first(declared, rest),
                              ", but element ", i, " has shape ", shape);
    }
    if (!rest.fully_known()) rest = shape.without_first();
    if (declared < 0) first = !any || first == shape.dim(0) ? shape.dim(0) : -1;
    any = true;
    return ok_status();
  }));
  if (!rest.fully_known()) {
    return invalid_argument(
        "the shape of elements that are not set must be known behind their "
        "first dimension, but it is ",
        rest, " and no element is set");
  }
  MR_TRY_ASSIGN(Shape known, rest.to_shape());
  return Pieces{std::move(known), first};
}

// Why elements cannot be joined, in the words of a TensorArray where the list stands for one.
Status concat_error(const KernelContext& ctx, const TensorList& list, const Status& why) {
  if (!is_array(ctx.node())) return why;
  const std::string prefix = array_prefix(ctx.node());
  if (list.length() == 0) {
    return unimplemented(prefix, "TensorArray has size zero, but element shape_except0 ",
                         "is not fully defined. Give the TensorArray an element_shape.");
  }
  const Tensor* first = nullptr;
  MR_TRY(list.for_each_set([&](int64_t i, const Tensor& element) -> Status {
    if (element.rank() == 0) {
      return invalid_argument(prefix, "Concat saw a scalar shape at index ", i,
                              " but requires at least vectors.");
    }
    if (first == nullptr) first = &element;
    const Shape mine = first->shape().without_first(), other = element.shape().without_first();
    if (mine == other) return ok_status();
    return invalid_argument(prefix,
                            "TensorArray has inconsistent shapes.  Index 0 has (excepting "
                            "dimension 0) shape: ",
                            mine, " but index ", i, " has (excepting dimension 0) shape: ", other);
  }));
  return why;
}

Status join(KernelContext& ctx, const PartialShape& expected,
            std::span<const int64_t> leading_dims) {
  MR_TRY_ASSIGN(const TensorList* list, list_input(ctx, 0, ctx.output_type(0)));
  Result<Pieces> found = pieces_of(*list, expected);
  if (!found.ok()) return concat_error(ctx, *list, found.status());
  const Pieces& pieces = *found;
  const int64_t count = list->length(), row = pieces.rest.num_elements();
  MR_TRY_ASSIGN(Tensor * lengths, ctx.allocate_output(1, Shape{count}));
  MR_TRY_ASSIGN(Tensor begins, ctx.allocate_temp(DType::kInt64, Shape{count + 1}));
  const std::span<int64_t> begin = begins.mutable_data<int64_t>();
  int64_t total = 0;
  begin[0] = 0;
  for (int64_t i = 0; i < count; ++i) {
    const size_t k = static_cast<size_t>(i);
    const Tensor& element = list->get(i);
    const int64_t length = element.valid()           ? element.dim(0)
                           : k < leading_dims.size() ? leading_dims[k]
                                                     : pieces.first;
    if (length < 0) {
      return invalid_argument("element ", i,
                              " is not set, so the size of its first dimension must "
                              "be known, got ",
                              length, " and ", leading_dims.size(), " leading_dims");
    }
    if (__builtin_add_overflow(total, length, &total)) {
      return invalid_argument("the ", count, " elements are too large to be joined");
    }
    lengths->mutable_data<int64_t>()[k] = length;
    if (__builtin_mul_overflow(total, row, &begin[k + 1])) {
      return invalid_argument("the ", count, " elements are too large to be joined");
    }
  }
  MR_TRY_ASSIGN(const Shape shape, Shape{total}.concat(pieces.rest));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
  join_pieces(ctx, *out, 0, begin, [list](int64_t i) -> const Tensor& { return list->get(i); });
  return ok_status();
}

class Concat : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(PartialShape shape, node.attr<PartialShape>("element_shape"));
    return std::make_unique<Concat>(std::move(shape));
  }
  explicit Concat(PartialShape element_shape) : element_shape_(std::move(element_shape)) {}

  Status compute(KernelContext& ctx) const override { return join(ctx, element_shape_, {}); }

 private:
  const PartialShape element_shape_;
};

Status concat_v2(KernelContext& ctx) {
  MR_TRY(expect_rank(ctx, 2, 1));
  MR_TRY_ASSIGN(const PartialShape expected, element_shape_input(ctx, 1));
  return join(ctx, expected, ctx.input(2).data<int64_t>());
}

// The checks of split() in the words of a TensorArray.
Status check_split(const KernelContext& ctx) {
  const Tensor &value = ctx.input(0), &lengths = ctx.input(2);
  if (lengths.rank() != 1) {
    return invalid_argument("Expected lengths to be a vector, received shape: ", lengths.shape());
  }
  if (value.rank() == 0) {
    return invalid_argument("Expected value to be at least a vector, but received shape: ",
                            value.shape());
  }
  int64_t sum = 0;
  bool good = true;
  for (const int64_t length : lengths.data<int64_t>()) {
    good = good && length >= 0 && !__builtin_add_overflow(sum, length, &sum);
  }
  if (good && sum == value.dim(0)) return ok_status();
  return invalid_argument(
      "Expected sum of lengths to be equal to values.shape[0], but sum of "
      "lengths is ",
      sum, " and value's shape is: ", value.shape());
}

Status split(KernelContext& ctx) {
  const Tensor& tensor = ctx.input(0);
  if (is_array(ctx.node())) MR_TRY(check_split(ctx));
  MR_TRY(expect_rank(ctx, 2, 1));
  if (tensor.rank() == 0) return invalid_argument("a scalar cannot be split");
  const std::span<const int64_t> lengths = ctx.input(2).data<int64_t>();
  MR_TRY(check_pieces(static_cast<int64_t>(lengths.size())));
  MR_TRY_ASSIGN(PartialShape shape, element_shape_input(ctx, 1));
  MR_TRY(check_piece_shape(shape));
  if (!fits(without_first(shape), tensor.shape().without_first())) {
    return invalid_argument("tensor shape ", tensor.shape(),
                            " is not compatible with element_shape ", shape, " of its pieces");
  }
  Ref<TensorList> list = make_ref<TensorList>(tensor.dtype(), std::move(shape));
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    if (length < 0 || length > tensor.dim(0) - begin) {
      return invalid_argument("lengths must not be negative and have the sum ", tensor.dim(0),
                              " of the tensor's rows, got ", ctx.input(2));
    }
    MR_TRY(list->push(tensor.rows(begin, begin + length)));
    begin += length;
  }
  if (begin != tensor.dim(0)) {
    return invalid_argument("lengths must have the sum ", tensor.dim(0),
                            " of the tensor's rows, got ", begin);
  }
  ctx.set_output(0, make_list_tensor(std::move(list)));
  return ok_status();
}

}  // namespace

void register_tensor_list_pieces(Registry& registry) {
  registry.add({.name = "TensorListConcat",
                .doc = "All elements joined along their first dimension, and its sizes.",
                .inputs = {{"input_handle", "variant"}},
                .outputs = {{"tensor", "element_dtype"}, {"lengths", "host(int64)"}},
                .types = {{"element_dtype", {}}},
                .attrs = {{"element_shape", "shape = ?", "What is known of the elements' shape."}},
                .traits = {.cost = 0.3F},
                .shape = concat_shape,
                .gradient = concat_grad});
  registry.add({.name = "TensorListConcatV2",
                .doc = "All elements joined along their first dimension, and its sizes. Unset ones "
                       "are zeros with leading_dims rows.",
                .inputs = {{"input_handle", "variant"},
                           {"element_shape", "host(shape_type)"},
                           {"leading_dims", "host(int64)"}},
                .outputs = {{"tensor", "element_dtype"}, {"lengths", "host(int64)"}},
                .types = {{"element_dtype", {}}, {"shape_type", kIndexTypes}},
                .traits = {.cost = 0.3F},
                .shape = concat_v2_shape,
                .gradient = concat_grad});
  registry.add({.name = "TensorListSplit",
                .doc = "A list of the pieces of a tensor cut along its first dimension.",
                .inputs = {{"tensor", "element_dtype"},
                           {"element_shape", "host(shape_type)"},
                           {"lengths", "host(int64)"}},
                .outputs = {{"output_handle", "variant"}},
                .types = {{"element_dtype", {}}, {"shape_type", kIndexTypes}},
                .traits = {.retains = 1},
                .shape = split_shape,
                .gradient = split_grad});
  registry.kernel<Concat>("TensorListConcat", DeviceKind::kCpu);
  registry.kernel("TensorListConcatV2", DeviceKind::kCpu, concat_v2);
  registry.kernel("TensorListSplit", DeviceKind::kCpu, split);
}

}  // namespace millrace
