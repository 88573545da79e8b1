#include "millrace/graph/gradient.h"

#include <algorithm>

#include "millrace/graph/op_def.h"

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

namespace {

bool any_may_have_gradients(const OpDef& op, const std::vector<ArgDef>& args) {
  return std::any_of(args.begin(), args.end(), [&](const ArgDef& arg) {
    if (arg.dtype != DType::kInvalid) return has_gradients(arg.dtype);
    const AttrDef* attr = op.find_attr(arg.type_attr.empty() ? arg.type_list_attr : arg.type_attr);
    if (attr == nullptr || attr->allowed_types.empty()) return true;
    for (int i = 1; i < kNumDTypes; ++i) {
      const DType type = static_cast<DType>(i);
      if (attr->allowed_types.contains(type) && has_gradients(type)) return true;
    }
    return false;
  });
}

}  // namespace

std::string why_no_gradient(const OpDef& op) {
  const OpTraits& is = op.traits;
  if (!op.no_gradient.empty()) return op.no_gradient;
  if (is.functional != FunctionalOp::kNone) return "run functions: the walk differentiates those";
  if (is.control_flow != ControlFlow::kNone) {
    return "what branches and loops become in a session: those are differentiated before";
  }
  if (is.send || is.recv) return "edges between devices, made after gradients";
  if (op.outputs.empty()) return "have no results";
  const bool by_nature = is.cannot_differentiate || is.argument || is.result;
  if (by_nature && (is.owns_state || is.step_state)) {
    return "make variables, queues and other state";
  }
  if (by_nature && op.find_attr("seed") != nullptr) return "draw random numbers";
  if (by_nature && is.stateful) return "read or change state in place";
  if (by_nature && op.inputs.empty()) return "values from outside the graph";
  if (!any_may_have_gradients(op, op.outputs)) return "the results are no real or complex numbers";
  if (!any_may_have_gradients(op, op.inputs)) return "no input is a real or complex number";
  if (by_nature && is.metadata_only) return "look at shapes only";
  if (by_nature && is.elementwise) {
    return "piecewise constant: zero wherever there is a derivative";
  }
  return "";
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
