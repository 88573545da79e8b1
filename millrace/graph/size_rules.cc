#include "millrace/graph/size_rules.h"

#include "millrace/graph/op_def.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// As the op's definition calls input i; a list's name stands for each of its tensors.
std::string input_name(const ShapeContext& c, int i) {
  const std::vector<ArgDef>& args = c.op().inputs;
  for (const ArgDef& arg : args) {
    if (arg.is_list()) return str_cat("input ", i);
  }
  return static_cast<size_t>(i) < args.size() ? args[static_cast<size_t>(i)].name
                                              : str_cat("input ", i);
}

}  // namespace

Result<PartialShape> sizes_input(const ShapeContext& c, int i) {
  if (const std::optional<PartialValue>& value = c.input_facts(i).value;
      value && !value->is_scalar) {
    for (size_t k = 0; k < value->elements.size(); ++k) {
      const int64_t size = value->elements[k].value_or(0);
      if (size >= 0) continue;
      return invalid_argument(input_name(c, i), "[", k, "] must not be negative, got ", size);
    }
  }
  return c.input_as_shape(i);
}

Result<PartialShape> sizes_input(const ShapeContext& c, int i, int rank) {
  MR_TRY_ASSIGN(PartialShape sizes, sizes_input(c, i));
  if (!sizes.rank_known()) return PartialShape::of_rank(rank);
  if (sizes.rank() == rank) return sizes;
  return invalid_argument(input_name(c, i), " must have ", rank, " elements, got ", sizes);
}

Result<std::optional<int>> axis_input(const ShapeContext& c, int i, int rank) {
  MR_TRY(c.with_rank(i, 0).status());
  const std::optional<int64_t> axis = c.input_scalar(i);
  if (!axis || rank < 0) return std::optional<int>();
  MR_TRY_ASSIGN(const int at, normalize_axis(*axis, rank, input_name(c, i)));
  return std::optional<int>(at);
}

std::optional<double> number_input(const ShapeContext& c, int i) {
  const Tensor* const constant = c.input_facts(i).constant;
  std::optional<double> number;
  if (constant == nullptr || constant->num_elements() != 1) return number;
  const Status known = dispatch<RealTypes>(
      constant->dtype(), [&]<class T>() { number = static_cast<double>(constant->data<T>()[0]); });
  return known.ok() ? number : std::nullopt;
}

Result<PartialShape> with_shape(const ShapeContext& c, int i, const PartialShape& expected) {
  Result<PartialShape> both = expected.merge(c.input(i));
  if (both.ok()) return both;
  return invalid_argument(input_name(c, i), " must have shape ", expected, ", got ", c.input(i));
}

Result<int64_t> multiply_sizes(int64_t a, int64_t b) {
  if (a < 0 || b < 0) return PartialShape::kUnknownDim;
  int64_t product = 0;
  if (!__builtin_mul_overflow(a, b, &product)) return product;
  return invalid_argument("a size of ", a, " times ", b, " is more than 63 bits can count");
}

}  // namespace millrace
