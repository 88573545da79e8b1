#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "millrace/base/function.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/kernel.h"
#include "millrace/ops/tensor_list/tensor_list.h"
#include "millrace/tensor/leading_dimension.h"

// What the ops on lists share. Inference knows a list by one entry of TensorFacts::resource, the
// type and shape of its elements; no entry: nothing is known.

namespace millrace {

// What is known of the elements of the list in input i, a scalar, which must have type `dtype`.
Result<PartialShape> list_shape(const ShapeContext& c, int i, DType dtype);
// The same with what the input `shape_input`, an element_shape, says.
Result<PartialShape> list_shape(const ShapeContext& c, int i, DType dtype, int shape_input);
// Makes output i a list with elements of this type and shape.
void set_list(ShapeContext& c, int i, DType dtype, PartialShape shape);
// INVALID_ARGUMENT unless `element` may be put into a list with elements of shape `list`.
Status check_fits(const PartialShape& list, const PartialShape& element);

// The list in input i, INVALID_ARGUMENT unless it is one with elements of type `dtype` (kInvalid:
// of any). Borrowed from the input.
Result<const TensorList*> list_input(const KernelContext& ctx, int i, DType dtype);
// The same list to be changed: the input itself where nobody else holds it, else a copy. `handle`
// is the output.
struct OwnList {
  Tensor handle;
  TensorList* list;
};
Result<OwnList> take_list(KernelContext& ctx, int i, DType dtype);

// Input i, a vector of sizes where -1 is unknown, or the scalar -1: nothing is known.
Result<PartialShape> element_shape_input(const KernelContext& ctx, int i);
// INVALID_ARGUMENT unless a tensor of shape `shape` is what input i, an element_shape, says.
Status check_element_shape(const KernelContext& ctx, int i, const Shape& shape);
// The one shape of all elements of `list`, to read unset ones: what the list declares, `expected`
// and the elements that are set know together. INVALID_ARGUMENT where that is not all, or where
// elements differ.
Result<Shape> common_shape(const TensorList& list, const PartialShape& expected);
// An int32 scalar.
Result<int64_t> int32_input(const KernelContext& ctx, int i);

// Lists that stand for a TensorArray. Ops on them have these attributes, which graphs keep and
// other runtimes ignore: the array's name for messages (such an op refuses to write an element
// twice), and that reading an element clears it.
inline constexpr std::string_view kArrayName = "_tensor_array";
inline constexpr std::string_view kClearAfterRead = "_clear_after_read";
inline constexpr std::string_view kFixedSize = "_fixed_size";
// "TensorArray NAME: ", or nothing where a list is just a list.
std::string array_prefix(const KernelNode& node);
bool is_array(const KernelNode& node);
// INVALID_ARGUMENT when the array has no element i, or one that was written before.
Status check_write(const TensorList& list, int64_t i, std::string_view prefix);
// INVALID_ARGUMENT when element i of an array that is cleared after reading was read before.
Status read_once(const TensorList& list, int64_t i, std::string_view prefix);

// Copies tensors one behind the other over `out`, on the context's threads: piece(i) or, where it
// is no tensor, zeros begin at element begins[i]. The last of `begins` is the end; without any, all
// pieces have `size` elements.
void join_pieces(const KernelContext& ctx, Tensor& out, int64_t size,
                 std::span<const int64_t> begins, FunctionRef<const Tensor&(int64_t)> piece);

// A new list holds so many elements cut from one tensor, which may be of no size.
inline constexpr int64_t kMaxPieces = int64_t{1} << 24;
Status check_pieces(int64_t count);

// For gradient rules.

// Whether a gradient flows into elements of this type: of others, gradient lists have unset ones
// only.
bool differentiable(DType dtype);
// `gradient`, read from a gradient list whose element may have been unset: what stands for zero in
// a list of lists becomes zeros like `x`.
Expr complete(Expr gradient, Expr x);
Expr length_of(Expr list);
Expr element_shape_of(Expr list);
// Unset elements like those of `list`.
Expr reserve_like(Expr list, DType dtype);
// The shape of a row of x, as a tensor.
Expr row_shape_of(Expr x);

}  // namespace millrace
