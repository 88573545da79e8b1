#include "millrace/ops/io/example_specs.h"

namespace millrace {

Result<std::vector<FeatureSpec>> dense_specs(std::span<const DType> types,
                                             std::span<const PartialShape> shapes) {
  if (types.size() != shapes.size()) {
    return invalid_argument("expected a shape for each of ", types.size(), " dense features, got ",
                            shapes.size());
  }
  std::vector<FeatureSpec> specs;
  for (size_t i = 0; i < types.size(); ++i) {
    MR_TRY_ASSIGN(specs.emplace_back(), FeatureSpec::dense(types[i], shapes[i]));
  }
  return specs;
}

Result<std::string> key_input(const KernelContext& ctx, int i, std::string_view what) {
  const Tensor& keys = ctx.input(i);
  if (keys.rank() != 0) {
    return invalid_argument("Expected ", what, " to be a scalar, got shape: ", keys.shape());
  }
  return keys.data<std::string>()[0];
}

Result<std::vector<std::string>> keys_input(const KernelContext& ctx, int i, std::string_view what,
                                            size_t size) {
  const Tensor& keys = ctx.input(i);
  if (keys.rank() != 1 || keys.dim(0) != static_cast<int64_t>(size)) {
    return invalid_argument("Expected ", what, " to be a vector of ", size,
                            ", got shape: ", keys.shape());
  }
  const std::span<const std::string> values = keys.data<std::string>();
  return std::vector<std::string>(values.begin(), values.end());
}

Status check_names(const ShapeContext& c, int i, const PartialShape& batch, bool scalar) {
  MR_TRY_ASSIGN(const PartialShape names, scalar ? c.with_rank_at_most(i, 1) : c.with_rank(i, 1));
  if (!names.fully_known() || !batch.fully_known()) return ok_status();
  const int64_t count = names.rank() == 0 ? 1 : names.dim(0);
  const int64_t examples = batch.rank() == 0 ? 1 : batch.dim(0);
  if (count == 0 || count == examples) return ok_status();
  return invalid_argument("expected a name for each of ", examples, " examples, got ", count);
}

Status check_names(const KernelContext& ctx, int i, const Tensor& serialized, bool scalar) {
  const Tensor& names = ctx.input(i);
  if (names.rank() > 1 || (!scalar && names.rank() != 1)) {
    return invalid_argument("Expected names to be a vector, got shape: ", names.shape());
  }
  const int64_t count = names.num_elements();
  if (count == 0 || count == serialized.num_elements()) return ok_status();
  return invalid_argument("expected a name for each of ", serialized.num_elements(),
                          " examples, got ", count);
}

Status check_keys(const ShapeContext& c, int i, size_t size) {
  MR_TRY_ASSIGN(const PartialShape keys, c.with_rank(i, 1));
  if (!keys.fully_known() || keys.dim(0) == static_cast<int64_t>(size)) return ok_status();
  return invalid_argument("expected ", size, " keys, got shape ", keys);
}

Status check_defaults(const ShapeContext& c, int first, std::span<const FeatureSpec> dense) {
  for (size_t i = 0; i < dense.size(); ++i) {
    const PartialShape& shape = c.input(first + static_cast<int>(i));
    if (!shape.fully_known()) continue;
    MR_TRY_ASSIGN(const Shape known, Shape::make(shape.dims()));
    if (known.num_elements() == 0) continue;
    const bool variable = dense[i].form == FeatureSpec::Form::kVariable;
    if (variable ? known.num_elements() == 1 : known == dense[i].shape) continue;
    return invalid_argument("the default of dense feature ", i, " must have shape ",
                            variable ? Shape{} : dense[i].shape, ", got ", known);
  }
  return ok_status();
}

void set_sparse_shapes(ShapeContext& c, int at, size_t count, int64_t columns) {
  const int n = static_cast<int>(count);
  for (int i = 0; i < n; ++i) {
    c.set_output(at + i, PartialShape{PartialShape::kUnknownDim, columns});
    c.set_output(at + n + i, PartialShape{PartialShape::kUnknownDim});
    c.set_output(at + 2 * n + i, PartialShape{columns});
  }
}

void set_sparse_outputs(KernelContext& ctx, int at, std::span<ParsedFeature> features) {
  const int n = static_cast<int>(features.size());
  for (int i = 0; i < n; ++i) {
    ParsedFeature& feature = features[static_cast<size_t>(i)];
    ctx.set_output(at + i, std::move(feature.indices));
    ctx.set_output(at + n + i, std::move(feature.values));
    ctx.set_output(at + 2 * n + i, std::move(feature.shape));
  }
}

Result<PartialShape> dense_output_shape(const PartialShape& batch, const PartialShape& shape) {
  if (!batch.rank_known()) return PartialShape();
  PartialShape out = batch;
  for (int i = 0; i < shape.rank(); ++i) out.add_dim(shape.dim(i));
  return PartialShape::make(out.dims());
}

}  // namespace millrace
