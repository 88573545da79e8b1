#include "millrace/graph/gradient.h"

namespace millrace {

bool has_gradients(DType type) {
  switch (base_type(type)) {
    case DType::kHalf:
    case DType::kBFloat16:
    case DType::kFloat:
    case DType::kDouble:
    case DType::kComplex64:
    case DType::kComplex128:
    case DType::kResource:
    case DType::kVariant:
      return true;
    default:
      return false;
  }
}

Expr to_dense(const Gradient& gradient) {
  if (!gradient.is_slices()) return gradient.values;
  // The number of rows is the first element of the shape.
  OpBuilder& builder = *gradient.values.builder();
  Expr rows = call("StridedSlice",
                   {gradient.dense_shape, int32_vector(builder, {0}), int32_vector(builder, {1}),
                    int32_vector(builder, {1})},
                   {{"shrink_axis_mask", int64_t{1}}});
  return call("UnsortedSegmentSum", {gradient.values, gradient.indices, cast(rows, DType::kInt32)});
}

GradientContext::GradientContext(OpBuilder& builder, std::vector<Expr> inputs,
                                 std::vector<Expr> outputs,
                                 const std::vector<Expr>& output_gradients, const AttrMap& attrs,
                                 std::vector<DType> input_types)
    : builder_(builder),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      attrs_(attrs),
      input_types_(std::move(input_types)),
      input_gradients_(inputs_.size()) {
  MR_CHECK(output_gradients.size() == outputs_.size());
  for (Expr gradient : output_gradients) output_gradients_.push_back({gradient, {}, {}});
  MR_CHECK(input_types_.size() == inputs_.size());
}

Expr GradientContext::gradient(int i) const {
  return has_gradient(i) ? to_dense(gradient_as_is(i)) : zeros_like(output(i));
}

const AttrValue& GradientContext::attr_value(std::string_view name) const {
  static const AttrValue& none = *new AttrValue;
  if (const AttrValue* value = attrs_.find(name)) return *value;
  builder_.fail(invalid_argument("No attr named '", name, "'"));
  return none;
}

}  // namespace millrace
