// Parts of a variable, named by index vectors: replaced, or combined with updates by an op of the
// elementwise table. A part that is named several times takes its updates in their order.

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/nd_index.h"
#include "millrace/ops/math/binary_ops.h"
#include "millrace/ops/rows.h"
#include "millrace/ops/state/variable_update.h"

namespace millrace {
namespace {

struct ScatterNdOp {
  const char* suffix;    // of ScatterNdX and ResourceScatterNdX
  const OpInfo* update;  // null: parts are replaced
  bool has_resource_form;
  const char* doc;
  // Of the reference form: a gradient that comes this way is an error, as in TensorFlow.
  const char* no_gradient = "";
};

constexpr const char* kReplaces = "replaces elements of a variable, whatever they were";

constexpr ScatterNdOp kScatterNdOps[] = {
    {"Update", nullptr, true, "Replaces parts of a variable."},
    {"Add", &Add::info, true, "Adds to parts of a variable."},
    {"Sub", &Sub::info, true, "Subtracts from parts of a variable."},
    {"Mul", &Mul::info, false, "Multiplies parts of a variable."},
    {"Div", &Div::info, false, "Divides parts of a variable."},
    {"Min", &Minimum::info, true, "Parts of a variable, where larger, become the updates.",
     kReplaces},
    {"Max", &Maximum::info, true, "Parts of a variable, where smaller, become the updates.",
     kReplaces},
};

Status reference_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape indices, c.with_rank_at_least(1, 1));
  MR_TRY(check_nd_updates(c.input(0), indices, c.input(2)));
  c.set_output(0, c.input(0));
  return ok_status();
}

Status resource_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape shape, variable_shape(c, 0, c.input_type(2)));
  MR_TRY_ASSIGN(const PartialShape indices, c.with_rank_at_least(1, 1));
  return check_nd_updates(shape, indices, c.input(2));
}

class ScatterNd : public Kernel {
 public:
  template <int kIndex>
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const DType dtype, node.attr<DType>("T"));
    MR_TRY_ASSIGN(const bool use_locking, node.attr<bool>("use_locking"));
    const OpInfo* update = kScatterNdOps[kIndex].update;
    if (update == nullptr) {
      return std::make_unique<ScatterNd>(BinaryFunction(), /*divides=*/false, use_locking);
    }
    return std::make_unique<ScatterNd>(BinaryFunction(*update, dtype),
                                       update->check == OperandCheck::kDivisor, use_locking);
  }
  ScatterNd(BinaryFunction function, bool divides, bool use_locking)
      : function_(function), divides_(divides), use_locking_(use_locking) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor &indices = ctx.input(1), &updates = ctx.input(2);
    VariableUpdate update(ctx, use_locking_);
    MR_TRY(update.open(1, updates.dtype()));
    const Shape shape = update.tensor(0).shape();
    MR_TRY_ASSIGN(const NdSizes sizes, NdSizes::make(shape, indices.shape()));
    MR_TRY(check_nd_updates(shape, indices.shape(), updates.shape()));
    MR_TRY_ASSIGN(const Tensor runs, find_runs(ctx, shape, sizes, indices));
    if (divides_) MR_TRY(check_divisors(updates));
    if (updates.num_elements() > 0) {
      MR_TRY_ASSIGN(Tensor * to, update.writable(0));
      scatter_rows(ctx, function_, updates, runs.data<int64_t>(), sizes.run, *to);
    }
    update.forward();
    return ok_status();
  }

 private:
  const BinaryFunction function_;
  const bool divides_;
  const bool use_locking_;
};

template <int kIndex>
void register_one(Registry& registry) {
  const ScatterNdOp& op = kScatterNdOps[kIndex];
  const auto add = [&](const std::string& name, bool resource) {
    const TypeSet types = resource || op.update == nullptr ? TypeSet() : kNumberTypes;
    const bool locks = resource || op.update == nullptr;
    OpSpec spec{.name = name,
                .doc = op.doc,
                .inputs = {{"ref", resource ? "resource" : "ref(T)"},
                           {"indices", "Tindices", "Index vectors in the last dimension."},
                           {"updates", "T"}},
                .types = {{"T", types}, {"Tindices", kIndexTypes}},
                .attrs = {{"use_locking", locks ? "bool = true" : "bool = false",
                           "Whether updates exclude each other."}},
                .traits = {.stateful = true, .cannot_differentiate = true},
                .shape = resource ? resource_shape : reference_shape};
    if (!resource) {
      spec.outputs = {{"output_ref", "ref(T)", "The variable, for what must come after."}};
      spec.traits.may_alias = 1;
      spec.traits.cannot_differentiate = *op.no_gradient == 0;
      spec.no_gradient = op.no_gradient;
    }
    registry.add(spec);
    KernelDef kernel{.op = name, .factory = ScatterNd::make<kIndex>};
    if (op.update != nullptr) kernel.constraints = {{"T", op.update->kernels & kNumbers}};
    registry.kernel(kernel);
  };
  add(str_cat("ScatterNd", op.suffix), false);
  if (op.has_resource_form) add(str_cat("ResourceScatterNd", op.suffix), true);
}

template <size_t... kIndices>
void register_all(Registry& registry, std::index_sequence<kIndices...>) {
  (register_one<static_cast<int>(kIndices)>(registry), ...);
}

}  // namespace

void register_scatter_nd(Registry& registry) {
  register_all(registry, std::make_index_sequence<std::size(kScatterNdOps)>());
}

}  // namespace millrace
