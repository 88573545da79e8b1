#include <algorithm>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/device_engine.h"
#include "millrace/ops/indices.h"
#include "millrace/ops/rows.h"
#include "millrace/ops/state/variable.h"

namespace millrace {
namespace {

// The shape of the indices, followed by that of what one index names. The first `batch_dims`
// dimensions of variable and indices go together.
Result<PartialShape> gathered_shape(const PartialShape& variable, const PartialShape& indices,
                                    int64_t batch_dims) {
  const int64_t most_batch_dims =
      std::min(indices.rank_known() ? indices.rank() : Shape::kMaxRank,
               variable.rank_known() ? variable.rank() - 1 : Shape::kMaxRank);
  if (batch_dims < 0 || batch_dims > most_batch_dims) {
    return invalid_argument("batch_dims must be from 0 to the rank of the indices ", indices,
                            " and less than the rank of the variable ", variable, ", got ",
                            batch_dims);
  }
  if (!variable.rank_known() || !indices.rank_known()) return PartialShape::unknown();
  PartialShape result = indices;
  for (int i = 0; i < batch_dims; ++i) {
    if (variable.dim_known(i) && indices.dim_known(i) && variable.dim(i) != indices.dim(i)) {
      return invalid_argument("the first ", batch_dims, " dimensions of the variable ", variable,
                              " and the indices ", indices, " must be equal");
    }
  }
  for (int i = static_cast<int>(batch_dims) + 1; i < variable.rank(); ++i) {
    result.add_dim(variable.dim(i));
  }
  return result;
}

Status gather_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(int64_t batch_dims, c.attr<int64_t>("batch_dims"));
  MR_TRY_ASSIGN(PartialShape variable, variable_shape(c, 0, c.output_type(0)));
  MR_TRY_ASSIGN(PartialShape shape, gathered_shape(variable, c.input(1), batch_dims));
  c.set_output(0, std::move(shape));
  return ok_status();
}

// Slices are rows of the first dimension, which a batch of rows is not: the gradient is dense. The
// rows of all batches are numbered through.
Status batch_gather_gradient(GradientContext& g, int64_t batch_dims) {
  OpBuilder& b = g.builder();
  const auto integer = [&](int64_t value) { return b.constant(Tensor::scalar<int64_t>(value)); };
  const auto part = [&](Expr vector, int64_t begin, int64_t size) {
    return call("Slice", {vector, b.constant(Tensor::vector<int64_t>({begin})),
                          b.constant(Tensor::vector<int64_t>({size}))});
  };
  const auto product = [&](Expr vector) { return call("Prod", {vector, int32_scalar(b, 0)}); };
  const Expr shape = call("VariableShape", {g.input(0)}, {{"out_type", DType::kInt64}});
  const Expr batches = product(part(shape, 0, batch_dims));
  const Expr rows = product(part(shape, batch_dims, 1));
  const Expr picked = product(part(shape_of(g.input(1), DType::kInt64), batch_dims, -1));
  const Expr first_rows =
      expand_dims(range(integer(0), batches, integer(1)) * rows, int32_scalar(b, 1));
  const Expr numbers =
      reshape(cast(g.input(1), DType::kInt64), call("Pack", {batches, picked})) + first_rows;
  const Expr count = call("Pack", {batches * picked});
  const Expr values = reshape(g.gradient(), concat({count, part(shape, batch_dims + 1, -1)}, 0));
  const Expr summed = call("UnsortedSegmentSum", {values, reshape(numbers, count), batches * rows});
  g.set(0, reshape(summed, shape));
  return ok_status();
}

Status gather_gradient(GradientContext& g) {
  MR_TRY_ASSIGN(int64_t batch_dims, g.attr<int64_t>("batch_dims"));
  if (batch_dims != 0) return batch_gather_gradient(g, batch_dims);
  OpBuilder& b = g.builder();
  const Expr shape = call("VariableShape", {g.input(0)});
  const Expr row_shape = call("Slice", {shape, int32_vector(b, {1}), int32_vector(b, {-1})});
  const Expr count = expand_dims(size_of(g.input(1)), int32_scalar(b, 0));
  g.set_slices(0, reshape(g.gradient(), concat({count, row_shape}, 0)),
               reshape(g.input(1), int32_vector(b, {-1})), shape);
  return ok_status();
}

class ResourceGather : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(int64_t batch_dims, node.attr<int64_t>("batch_dims"));
    return std::make_unique<ResourceGather>(batch_dims);
  }
  explicit ResourceGather(int64_t batch_dims) : batch_dims_(batch_dims) {}

  // The variable stays locked for readers: a writer waits instead of copying all of it.
  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(Ref<ResourceVariable> variable, variable_input(ctx, 0));
    MR_TRY(check_variable_type(*variable, ctx.output_type(0)));
    variable->lock_shared();
    Status status = gather(ctx, variable->tensor());
    variable->unlock_shared();
    return status;
  }

 private:
  Status gather(KernelContext& ctx, const Tensor& variable) const {
    if (!variable.valid()) return uninitialized_variable(ctx.input(0).item<ResourceHandle>());
    const Tensor& indices = ctx.input(1);
    MR_TRY_ASSIGN(PartialShape known,
                  gathered_shape(variable.shape(), indices.shape(), batch_dims_));
    MR_TRY_ASSIGN(Shape shape, Shape::make(known.dims()));
    int64_t batches = 1, row_size = 1;
    const int axis = static_cast<int>(batch_dims_);
    for (int i = 0; i < axis; ++i) batches *= variable.dim(i);
    for (int i = axis + 1; i < variable.rank(); ++i) row_size *= variable.dim(i);
    const int64_t rows_in_batch = variable.dim(axis);
    if (DeviceEngine* const device = device_engine(ctx)) {
      const int64_t count = indices.num_elements();
      MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
      return device->gather(ctx, dtype_size(out->dtype()), indices.dtype(), batches, /*outer=*/1,
                            count == 0 ? 0 : count / batches, row_size, variable.raw(),
                            indices.raw(), {.limit = rows_in_batch, .what = "indices"},
                            out->mutable_raw());
    }
    MR_TRY_ASSIGN(const Indices rows, Indices::read_below(ctx, indices, rows_in_batch));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (out->num_elements() == 0) return ok_status();
    if (batches == 1) {
      gather_rows(ctx, variable, rows.size(), row_size, [&](int64_t i) { return rows[i]; }, *out);
      return ok_status();
    }
    const int64_t in_batch = rows.size() / batches;
    const auto source = [&](int64_t i) { return i / in_batch * rows_in_batch + rows[i]; };
    gather_rows(ctx, variable, rows.size(), row_size, source, *out);
    return ok_status();
  }

  const int64_t batch_dims_;
};

}  // namespace

void register_resource_gather(Registry& registry) {
  registry.add({.name = "ResourceGather",
                .doc = "Rows of a variable's value, chosen by index.",
                .inputs = {{"resource", "resource"},
                           {"indices", "Tindices", "Along the first dimension after the batch."}},
                .outputs = {{"output", "dtype"}},
                .types = {{"dtype", {}}, {"Tindices", kIndexTypes}},
                .attrs = {{"batch_dims", "int = 0", "Leading dimensions that go together."},
                          {"validate_indices", "bool = true", "Indices are always checked."}},
                .traits = {.stateful = true},
                .shape = gather_shape,
                .gradient = gather_gradient});
  registry.kernel<ResourceGather>("ResourceGather", DeviceKind::kCpu);
}

}  // namespace millrace
