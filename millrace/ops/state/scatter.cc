// Rows of a variable, chosen by index: replaced, or combined with updates by an op of the
// elementwise table. A row that is named several times takes its updates in their order.

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/strided_copy.h"
#include "millrace/ops/device_engine.h"
#include "millrace/ops/indices.h"
#include "millrace/ops/math/binary_ops.h"
#include "millrace/ops/rows.h"
#include "millrace/ops/state/variable_update.h"

namespace millrace {
namespace {

struct ScatterOp {
  const char* suffix;    // of ScatterX and ResourceScatterX
  const OpInfo* update;  // null: rows are replaced
  TypeSet types;         // of the reference form's definition
  const char* doc;
  // Of the reference form: a gradient that comes this way is an error, as in TensorFlow.
  const char* no_gradient = "";
};

constexpr const char* kReplaces = "replaces elements of a variable, whatever they were";

constexpr TypeSet kComparable = kFloating | kIndexTypes;
constexpr ScatterOp kScatterOps[] = {
    {"Update", nullptr, {}, "Replaces rows of a variable.", kReplaces},
    {"Add", &Add::info, kNumberTypes, "Adds to rows of a variable."},
    {"Sub", &Sub::info, kNumberTypes, "Subtracts from rows of a variable."},
    {"Mul", &Mul::info, kNumberTypes, "Multiplies rows of a variable."},
    {"Div", &Div::info, kNumberTypes, "Divides rows of a variable."},
    {"Min", &Minimum::info, kComparable, "Rows of a variable, where larger, become the updates.",
     kReplaces},
    {"Max", &Maximum::info, kComparable, "Rows of a variable, where smaller, become the updates.",
     kReplaces},
};

// Updates are a scalar, or one row of the variable for each index.
Status check_updates_shape(const PartialShape& variable, const PartialShape& indices,
                           const PartialShape& updates) {
  if (variable.rank() == 0) return invalid_argument("a variable of rank 1 or more is expected");
  if (!variable.rank_known() || !indices.rank_known() || updates.rank() == 0) return ok_status();
  PartialShape expected = indices;
  for (int i = 1; i < variable.rank(); ++i) expected.add_dim(variable.dim(i));
  if (expected.compatible(updates)) return ok_status();
  return invalid_argument(
      "updates must be a scalar or have the shape of the indices followed by that of a row, ",
      expected, ", got ", updates);
}

Status reference_shape(ShapeContext& c) {
  MR_TRY(check_updates_shape(c.input(0), c.input(1), c.input(2)));
  c.set_output(0, c.input(0));
  return ok_status();
}

Status resource_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, variable_shape(c, 0, c.input_type(2)));
  return check_updates_shape(shape, c.input(1), c.input(2));
}

class Scatter : public Kernel {
 public:
  // `function` and `op`, the name of the op that it is of, are empty when rows are replaced.
  Scatter(BinaryFunction function, const char* op, bool divides, bool use_locking)
      : function_(function), op_(op), divides_(divides), use_locking_(use_locking) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor& indices = ctx.input(1);
    const Tensor& updates = ctx.input(2);
    VariableUpdate update(ctx, use_locking_);
    MR_TRY(update.open(1, updates.dtype()));
    const Shape shape = update.tensor(0).shape();
    MR_TRY(check_updates_shape(shape, indices.shape(), updates.shape()));
    if (DeviceEngine* const device = device_engine(ctx)) {
      MR_TRY(scatter_on_device(ctx, *device, update, shape));
      update.forward();
      return ok_status();
    }
    MR_TRY_ASSIGN(const Indices rows, Indices::read_below(ctx, indices, shape.dim(0)));
    if (divides_) MR_TRY(check_divisors(updates));
    const int64_t row_size = shape.without_first().num_elements();
    if (rows.size() > 0 && row_size > 0) {
      MR_TRY_ASSIGN(Tensor from, rows_of_updates(ctx, updates, row_size));
      MR_TRY_ASSIGN(Tensor * to, update.writable(0));
      scatter_rows(ctx, function_, from, rows.span(), row_size, *to);
    }
    update.forward();
    return ok_status();
  }

 private:
  Status scatter_on_device(KernelContext& ctx, DeviceEngine& device, VariableUpdate& update,
                           const Shape& shape) const {
    const Tensor &indices = ctx.input(1), &updates = ctx.input(2);
    const int64_t row_size = shape.without_first().num_elements();
    if (indices.num_elements() == 0 || row_size == 0) return ok_status();
    MR_TRY_ASSIGN(const Tensor from, rows_of_updates(ctx, updates, row_size));
    MR_TRY_ASSIGN(Tensor * to, update.writable(0));
    return device.scatter(ctx, op_, to->dtype(), indices.dtype(), indices.num_elements(), row_size,
                          from.raw(), updates.rank() == 0, indices.raw(),
                          {.limit = shape.dim(0), .what = "indices"}, to->mutable_raw());
  }

  // One row per index; of a scalar one row, which serves all.
  static Result<Tensor> rows_of_updates(KernelContext& ctx, const Tensor& updates,
                                        int64_t row_size) {
    if (updates.rank() > 0) return updates;
    MR_TRY_ASSIGN(Tensor row, ctx.allocate_temp(updates.dtype(), Shape{row_size}));
    fill_tensor(ctx, updates, row);
    return row;
  }

  const BinaryFunction function_;
  const char* const op_;
  const bool divides_;
  const bool use_locking_;
};

Result<std::unique_ptr<Kernel>> make_scatter(const OpInfo* info, DType dtype, bool use_locking) {
  if (info == nullptr) {
    return std::make_unique<Scatter>(BinaryFunction(), "", /*divides=*/false, use_locking);
  }
  return std::make_unique<Scatter>(BinaryFunction(*info, dtype), info->name,
                                   info->check == OperandCheck::kDivisor, use_locking);
}

template <int kIndex>
Result<std::unique_ptr<Kernel>> make_reference_scatter(const KernelNode& node) {
  MR_TRY_ASSIGN(DType dtype, node.attr<DType>("T"));
  MR_TRY_ASSIGN(bool use_locking, node.attr<bool>("use_locking"));
  return make_scatter(kScatterOps[kIndex].update, dtype, use_locking);
}

template <int kIndex>
Result<std::unique_ptr<Kernel>> make_resource_scatter(const KernelNode& node) {
  MR_TRY_ASSIGN(DType dtype, node.attr<DType>("dtype"));
  return make_scatter(kScatterOps[kIndex].update, dtype, /*use_locking=*/true);
}

template <int kIndex>
void register_one(Registry& registry) {
  const ScatterOp& op = kScatterOps[kIndex];
  const TypeSet kernels = op.update != nullptr ? op.update->kernels : TypeSet();
  const auto constraint = [&](const char* attr, TypeSet allowed) {
    std::vector<KernelDef::Constraint> constraints;
    if (!kernels.empty()) constraints.push_back({attr, kernels & allowed});
    return constraints;
  };
  const std::string reference = str_cat("Scatter", op.suffix);
  registry.add(
      {.name = reference,
       .doc = op.doc,
       .inputs = {{"ref", "ref(T)"},
                  {"indices", "Tindices", "Of rows: along the first dimension."},
                  {"updates", "T", "A row for each index, or a scalar."}},
       .outputs = {{"output_ref", "ref(T)", "The variable, for what must come after."}},
       .types = {{"T", op.types}, {"Tindices", kIndexTypes}},
       .attrs = {{"use_locking", op.update == nullptr ? "bool = true" : "bool = false",
                  "Whether updates exclude each other."}},
       .traits = {.stateful = true, .cannot_differentiate = *op.no_gradient == 0, .may_alias = 1},
       .shape = reference_shape,
       .no_gradient = op.no_gradient});
  registry.kernel({.op = reference,
                   .device = DeviceKind::kCpu,
                   .constraints = constraint("T", op.types),
                   .factory = &make_reference_scatter<kIndex>});
  const std::string resource = str_cat("Resource", reference);
  const TypeSet types = op.update != nullptr ? kNumberTypes : TypeSet();
  registry.add({.name = resource,
                .doc = op.doc,
                .inputs = {{"resource", "resource"},
                           {"indices", "Tindices", "Of rows: along the first dimension."},
                           {"updates", "dtype", "A row for each index, or a scalar."}},
                .types = {{"dtype", types}, {"Tindices", kIndexTypes}},
                .traits = {.stateful = true, .cannot_differentiate = true},
                .shape = resource_shape});
  registry.kernel({.op = resource,
                   .device = DeviceKind::kCpu,
                   .constraints = constraint("dtype", types),
                   .factory = &make_resource_scatter<kIndex>});
}

template <size_t... kIndices>
void register_all(Registry& registry, std::index_sequence<kIndices...>) {
  (register_one<static_cast<int>(kIndices)>(registry), ...);
}

}  // namespace

void register_scatter(Registry& registry) {
  register_all(registry, std::make_index_sequence<std::size(kScatterOps)>());
}

}  // namespace millrace
