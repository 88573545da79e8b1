#include "millrace/graph/gradient.h"

namespace millrace {

GradientContext::GradientContext(OpBuilder& builder, std::vector<Expr> inputs,
                                 std::vector<Expr> outputs, std::vector<Expr> output_gradients,
                                 const AttrMap& attrs, std::vector<DType> input_types)
    : builder_(builder),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      output_gradients_(std::move(output_gradients)),
      attrs_(attrs),
      input_types_(std::move(input_types)),
      input_gradients_(inputs_.size()) {
  MR_CHECK(output_gradients_.size() == outputs_.size());
  MR_CHECK(input_types_.size() == inputs_.size());
}

Expr GradientContext::gradient(int i) const {
  return has_gradient(i) ? output_gradients_[static_cast<size_t>(i)] : zeros_like(output(i));
}

const AttrValue& GradientContext::attr_value(std::string_view name) const {
  static const AttrValue& none = *new AttrValue;
  if (const AttrValue* value = attrs_.find(name)) return *value;
  builder_.fail(invalid_argument("No attr named '", name, "'"));
  return none;
}

}  // namespace millrace
