#include "millrace/graph/shape_context.h"

#include <algorithm>

#include "millrace/graph/op_def.h"

namespace millrace {

namespace {

// The elements of a small integer tensor.
std::optional<PartialValue> value_of(const Tensor& tensor) {
  if (tensor.rank() > 1 || tensor.num_elements() > kMaxValueElements) return std::nullopt;
  PartialValue value;
  value.is_scalar = tensor.rank() == 0;
  if (tensor.dtype() == DType::kInt32) {
    const auto data = tensor.data<int32_t>();
    value.elements.assign(data.begin(), data.end());
  } else if (tensor.dtype() == DType::kInt64) {
    const auto data = tensor.data<int64_t>();
    value.elements.assign(data.begin(), data.end());
  } else {
    return std::nullopt;
  }
  return value;
}

Status infer_constant(ShapeContext& c) {
  const AttrValue* attr = c.attrs().find("value");
  const TensorAttr* value = attr == nullptr ? nullptr : attr->get<TensorAttr>();
  if (value == nullptr || !value->tensor.valid()) {
    return invalid_argument("attr 'value' must be a tensor");
  }
  if (c.num_outputs() != 1)
    return invalid_argument("a constant has one output, not ", c.num_outputs());
  const Tensor& tensor = value->tensor;
  if (tensor.dtype() != c.output_type(0)) {
    return invalid_argument("attr 'value' is of type ", tensor.dtype(), ", expected ",
                            c.output_type(0));
  }
  TensorFacts& facts = c.outputs()[0];
  facts.shape = PartialShape(tensor.shape());
  facts.value = value_of(tensor);
  facts.constant = &tensor;
  return ok_status();
}

// Whether a tensor could have this shape: rules put shapes together from sizes that users wrote.
Status check_possible(const PartialShape& shape) {
  int64_t product = 1;
  bool possible = shape.rank() <= Shape::kMaxRank;
  for (int64_t dim : shape.dims()) {
    possible &= dim >= PartialShape::kUnknownDim;
    if (dim > 0) possible &= !__builtin_mul_overflow(product, dim, &product);
  }
  return possible ? ok_status() : PartialShape::make(shape.dims()).status();
}

Status check_outputs(const std::vector<TensorFacts>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    Status status = check_possible(outputs[i].shape);
    for (const ResourceHandle::DTypeAndShape& held : outputs[i].resource) {
      if (status.ok()) status = check_possible(held.shape);
    }
    if (!status.ok()) return invalid_argument("output ", i, ": ", status.message());
  }
  return ok_status();
}

}  // namespace

bool PartialValue::fully_known() const {
  return std::all_of(elements.begin(), elements.end(), [](const auto& e) { return e.has_value(); });
}

ShapeContext::ShapeContext(const OpDef& op, const AttrMap& attrs,
                           std::vector<const TensorFacts*> inputs, std::vector<DType> input_types,
                           std::vector<DType> output_types)
    : op_(op),
      attrs_(attrs),
      inputs_(std::move(inputs)),
      input_types_(std::move(input_types)),
      output_types_(std::move(output_types)),
      outputs_(output_types_.size()) {}

Result<PartialShape> ShapeContext::with_rank(int i, int rank) const {
  const PartialShape& shape = input(i);
  if (!shape.rank_known()) return PartialShape::of_rank(rank);
  if (shape.rank() == rank) return shape;
  return invalid_argument("Shape must be rank ", rank, " but is rank ", shape.rank(), ": input ", i,
                          " has shape ", shape);
}

Result<PartialShape> ShapeContext::with_rank_at_least(int i, int rank) const {
  const PartialShape& shape = input(i);
  if (!shape.rank_known() || shape.rank() >= rank) return shape;
  return invalid_argument("Shape must be at least rank ", rank, " but is rank ", shape.rank(),
                          ": input ", i, " has shape ", shape);
}

Result<PartialShape> ShapeContext::with_rank_at_most(int i, int rank) const {
  const PartialShape& shape = input(i);
  if (!shape.rank_known() || shape.rank() <= rank) return shape;
  return invalid_argument("Shape must be at most rank ", rank, " but is rank ", shape.rank(),
                          ": input ", i, " has shape ", shape);
}

Result<PartialShape> ShapeContext::input_as_shape(int i) const {
  const PartialShape& shape = input(i);
  if (const std::optional<PartialValue>& value = input_facts(i).value) {
    if (value->is_scalar) {
      // A scalar of -1 stands for a shape of which nothing is known.
      if (value->elements[0].value_or(-1) == -1) return PartialShape();
      return invalid_argument("input ", i, " must be a vector of sizes, got the scalar ",
                              *value->elements[0]);
    }
    std::vector<int64_t> dims;
    dims.reserve(value->elements.size());
    for (const auto& e : value->elements) dims.push_back(e.value_or(PartialShape::kUnknownDim));
    return PartialShape::make(dims);
  }
  if (!shape.rank_known()) return PartialShape();
  if (shape.rank() == 0) return PartialShape();
  if (shape.rank() != 1) {
    return invalid_argument("input ", i, " must be a vector of sizes, got shape ", shape);
  }
  if (!shape.dim_known(0)) return PartialShape();
  if (shape.dim(0) > Shape::kMaxRank) {
    return invalid_argument("input ", i, " describes a shape of ", shape.dim(0),
                            " dimensions; there can be ", Shape::kMaxRank);
  }
  return PartialShape::of_rank(static_cast<int>(shape.dim(0)));
}

std::optional<int64_t> ShapeContext::input_scalar(int i) const {
  const std::optional<PartialValue>& value = input_facts(i).value;
  if (!value || value->elements.size() != 1) return std::nullopt;
  return value->elements[0];
}

std::optional<std::vector<int64_t>> ShapeContext::input_vector(int i) const {
  const std::optional<PartialValue>& value = input_facts(i).value;
  if (!value || !value->fully_known()) return std::nullopt;
  std::vector<int64_t> out;
  out.reserve(value->elements.size());
  for (const auto& e : value->elements) out.push_back(*e);
  return out;
}

namespace shape_rules {

Status unchanged(ShapeContext& c) {
  c.set_output(0, c.input(0));
  return ok_status();
}

Status scalar(ShapeContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, PartialShape::scalar());
  return ok_status();
}

Status unknown(ShapeContext&) { return ok_status(); }

Status no_outputs(ShapeContext&) { return ok_status(); }

Status broadcast(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, broadcast_shapes(c.input(0), c.input(1)));
  c.set_output(0, std::move(shape));
  return ok_status();
}

Status merged(ShapeContext& c) {
  PartialShape shape;
  for (int i = 0; i < c.num_inputs(); ++i) {
    Result<PartialShape> both = shape.merge(c.input(i));
    if (!both.ok()) {
      return invalid_argument("shapes of all inputs must match: input ", i, " is ", c.input(i),
                              ", the ones before it are ", shape);
    }
    shape = std::move(both).value();
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, shape);
  return ok_status();
}

}  // namespace shape_rules

Result<PartialShape> broadcast_shapes(const PartialShape& a, const PartialShape& b) {
  if (!a.rank_known() || !b.rank_known()) return PartialShape();
  const int rank = std::max(a.rank(), b.rank());
  std::vector<int64_t> dims(static_cast<size_t>(rank));
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank());
    const int ib = i - (rank - b.rank());
    const int64_t da = ia < 0 ? 1 : a.dim(ia);
    const int64_t db = ib < 0 ? 1 : b.dim(ib);
    int64_t& d = dims[static_cast<size_t>(i)];
    if (da == db || db == 1) {
      d = da;
    } else if (da == 1) {
      d = db;
    } else if (da < 0 || db < 0) {
      // An unknown size is 1 or that of the other, which is known and not 1.
      d = std::max(da, db);
    } else {
      return invalid_argument("Dimensions must be equal, but are ", da, " and ", db,
                              ": incompatible shapes ", a, " and ", b,
                              " cannot be broadcast together");
    }
  }
  return PartialShape::make(dims);
}

Result<Shape> broadcast_shapes(const Shape& a, const Shape& b) {
  if (a == b) return a;
  MR_TRY_ASSIGN(PartialShape shape, broadcast_shapes(PartialShape(a), PartialShape(b)));
  return shape.to_shape();
}

const PartialValue* ValueContext::input(int i) const {
  const std::optional<PartialValue>& value = shapes_.input_facts(i).value;
  return value ? &*value : nullptr;
}

void ValueContext::set_output(int i, PartialValue value) {
  if (static_cast<int64_t>(value.elements.size()) > kMaxValueElements) return;
  MR_DCHECK(!value.is_scalar || value.elements.size() == 1);
  shapes_.outputs()[static_cast<size_t>(i)].value = std::move(value);
}

Result<std::vector<TensorFacts>> infer(ShapeContext& context) {
  const OpDef& op = context.op();
  if (op.traits.constant) {
    MR_TRY(infer_constant(context));
    return std::move(context.outputs());
  }
  if (op.shape != nullptr) MR_TRY(op.shape(context));
  MR_TRY(check_outputs(context.outputs()));
  if (op.value != nullptr) {
    ValueContext values(context);
    op.value(values);
  }
  return std::move(context.outputs());
}

}  // namespace millrace
