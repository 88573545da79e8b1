#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"

namespace millrace {
namespace {

// Each value is one row of the output, whose shape the attribute says.
Status check_rows(const PartialShape& shape, int count, int i, const PartialShape& value) {
  if (shape.rank() == 0 || (shape.rank_known() && shape.dim_known(0) && shape.dim(0) != count)) {
    return invalid_argument("shape must begin with the number of values, ", count, ", got ", shape);
  }
  PartialShape expected = shape;
  if (expected.rank_known()) expected.set_dim(0, 1);
  if (expected.compatible(value)) return ok_status();
  return invalid_argument("value ", i, " must have shape ", expected, ", got ", value);
}

Status parallel_concat_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, c.attr<PartialShape>("shape"));
  MR_TRY(shape.to_shape().status());
  for (int i = 0; i < c.num_inputs(); ++i) {
    MR_TRY(check_rows(shape, c.num_inputs(), i, c.input(i)));
  }
  c.set_output(0, std::move(shape));
  return ok_status();
}

Status parallel_concat_grad(GradientContext& g) {
  const std::vector<Expr> rows = call_multi("Split", {int32_scalar(g.builder(), 0), g.gradient()},
                                            {{"num_split", g.num_inputs()}});
  for (size_t i = 0; i < rows.size(); ++i) g.set(static_cast<int>(i), rows[i]);
  return ok_status();
}

class ParallelConcat : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const PartialShape known, node.attr<PartialShape>("shape"));
    MR_TRY_ASSIGN(Shape shape, known.to_shape());
    return std::make_unique<ParallelConcat>(std::move(shape));
  }
  explicit ParallelConcat(Shape shape) : shape_(std::move(shape)) {}

  Status compute(KernelContext& ctx) const override {
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      MR_TRY(check_rows(shape_, ctx.num_inputs(), i, ctx.input(i).shape()));
    }
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape_));
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      Tensor row = out->rows(i, i + 1);
      copy_elements(ctx.input(i), row);
    }
    return ok_status();
  }

 private:
  const Shape shape_;
};

}  // namespace

void register_parallel_concat(Registry& registry) {
  registry.add({.name = "ParallelConcat",
                .doc = "Tensors of one row each, joined.",
                .inputs = {{"values", "N*T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}},
                .attrs = {{"N", "int >= 1"}, {"shape", "shape", "Of the output."}},
                .traits = {.cost = 0.5F},
                .shape = parallel_concat_shape,
                .gradient = parallel_concat_grad});
  registry.kernel<ParallelConcat>("ParallelConcat", DeviceKind::kCpu);
}

}  // namespace millrace
