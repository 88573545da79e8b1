#include "millrace/api/layer_support.h"

namespace millrace::layers {

Layer::Layer(const Scope& scope, Variables& variables, std::string_view kind, std::string_view name,
             SourceLocation where)
    : outside_(scope),
      inside_(scope.sub_scope(name)),
      variables_(variables),
      kind_(kind),
      name_(name),
      where_(where) {}

Variable* Layer::variable(std::string_view part, std::initializer_list<int64_t> dims, DType dtype,
                          const Initializer& initializer, const VariableOptions& options) {
  if (!inside_.ok()) return nullptr;
  Result<Shape> shape = Shape::make(std::span<const int64_t>(dims.begin(), dims.size()));
  if (!shape.ok()) {
    fail(shape.status());
    return nullptr;
  }
  Variable& v = variables_.get(outside_, str_cat(name_, "/", part), *shape, dtype, initializer,
                               options, where_);
  return v.valid() ? &v : nullptr;
}

Expr Layer::weight(std::string_view part, std::initializer_list<int64_t> dims, DType dtype,
                   const Initializer& initializer) {
  const Variable* v = variable(part, dims, dtype, initializer);
  return v != nullptr ? v->read(inside_, where_) : Expr();
}

int64_t Layer::known_last(Expr& x, std::string_view what) {
  if (!inside_.ok()) return 0;
  x = inside_.builder().import(x);
  if (!x.valid()) return 0;
  const PartialShape shape = x.shape();
  if (shape.rank() >= 1 && shape.dim_known(shape.rank() - 1)) return shape.dim(shape.rank() - 1);
  fail(invalid_argument("the last dimension of ", what, " must be known, its shape is ", shape));
  return 0;
}

bool Layer::positive(int64_t value, std::string_view what) {
  constexpr int64_t kMost = int64_t{1} << 40;
  if (value > 0 && value <= kMost) return inside_.ok();
  fail(invalid_argument(what, " must be from 1 to ", kMost, ", got ", value));
  return false;
}

Expr Layer::fail(const Status& status) {
  inside_.builder().fail(status.with_prefix(str_cat(kind_, " \"", name_, "\" at ", where_)));
  return Expr();
}

Moments moments_of(Expr x, Expr axes, bool keep_dims) {
  const AttrMap attrs = {{"keep_dims", keep_dims}};
  Expr mean = call("Mean", {x, axes}, attrs);
  return {mean, call("Mean", {square(x - mean), axes}, attrs)};
}

}  // namespace millrace::layers
