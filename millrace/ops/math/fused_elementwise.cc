#include <memory>
#include <optional>

#include "millrace/graph/elementwise_tree.h"
#include "millrace/graph/size_rules.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/reshape.h"
#include "millrace/ops/math/tree_function.h"
#include "millrace/ops/reduce/reduce.h"

// The op that passes put in place of a tree of elementwise ops.

namespace millrace {
namespace {

// The shape of a stage that hands on what it reads, x; where it has a second operand, an input,
// that is a list of sizes or of dimensions to fold.
Result<PartialShape> shape_by_list(const ShapeContext& c, const ElementwiseTree::Stage& stage,
                                   const PartialShape& x) {
  if (stage.operands.size() == 1) return x;
  const int list = stage.operands[1];
  if (stage.op == "BroadcastTo") {
    MR_TRY_ASSIGN(PartialShape shape, sizes_input(c, list));
    MR_TRY(check_broadcast_to(x, shape));
    return shape;
  }
  if (stage.op == "Reshape") {
    MR_TRY_ASSIGN(PartialShape shape, c.input_as_shape(list));
    return reshaped(x, std::move(shape));
  }
  if (stage.op == "ExpandDims") {
    const std::optional<int64_t> dim = c.input_scalar(list);
    if (!x.rank_known() || !dim) return PartialShape();
    MR_TRY_ASSIGN(const int axis, normalize_axis(*dim, x.rank() + 1, "dim"));
    std::vector<int64_t> dims(x.dims().begin(), x.dims().end());
    dims.insert(dims.begin() + axis, 1);
    return PartialShape::make(dims);
  }
  return reduced_shape(x, c.input(list), c.input_vector(list), stage.keep_dims);
}

Status fused_elementwise_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const ElementwiseTree tree, ElementwiseTree::read(c.attrs(), c.num_inputs()));
  std::vector<DType> types;
  std::vector<PartialShape> shapes;
  for (int i = 0; i < c.num_inputs(); ++i) {
    types.push_back(base_type(c.input_type(i)));
    shapes.push_back(c.input(i));
  }
  for (const ElementwiseTree::Stage& stage : tree.stages) {
    std::vector<DType> operand_types;
    std::vector<const PartialShape*> operands;
    for (int o : stage.operands) {
      operand_types.push_back(types[static_cast<size_t>(o)]);
      operands.push_back(&shapes[static_cast<size_t>(o)]);
    }
    MR_TRY_ASSIGN(const std::optional<StageFunction> function,
                  TreeFunction::function_of(stage, c.num_inputs(), operand_types));
    MR_TRY_ASSIGN(PartialShape shape,
                  function ? function->shape(operands) : shape_by_list(c, stage, *operands[0]));
    types.push_back(stage.type);
    shapes.push_back(std::move(shape));
  }
  if (static_cast<int>(tree.results.size()) != c.num_outputs()) {
    return invalid_argument("'results' must name a stage for each of ", c.num_outputs(),
                            " outputs, got ", tree.results.size());
  }
  for (int i = 0; i < c.num_outputs(); ++i) {
    const size_t stage = static_cast<size_t>(tree.results[static_cast<size_t>(i)]);
    c.set_output(i, shapes[static_cast<size_t>(c.num_inputs()) + stage]);
  }
  return ok_status();
}

class FusedElementwise final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(TreeFunction tree, TreeFunction::make(node));
    return std::unique_ptr<Kernel>(new FusedElementwise(std::move(tree)));
  }
  explicit FusedElementwise(TreeFunction tree) : tree_(std::move(tree)) {}
  Status compute(KernelContext& ctx) const override { return tree_.compute(ctx); }

 private:
  const TreeFunction tree_;
};

}  // namespace

void register_fused_elementwise(Registry& registry) {
  registry.add({.name = "_FusedElementwise",
                .doc =
                    "A tree of elementwise ops and folds of their rows, computed a block that fits "
                    "the cache after the other; its attributes are written as "
                    "graph/elementwise_tree.h says.",
                .inputs = {{"inputs", "list(Tin)"}},
                .outputs = {{"outputs", "list(Tout)"}},
                .attrs = {{"Tin", "list(type) >= 1"},
                          {"Tout", "list(type) >= 1"},
                          {"stages", "list(string) >= 1"},
                          {"arities", "list(int) >= 1"},
                          {"operands", "list(int) >= 1"},
                          {"results", "list(int) >= 1"}},
                .traits = {.may_alias = ~0U, .cost = 1},
                .shape = fused_elementwise_shape,
                .no_gradient = "passes make it after gradients are built"});
  registry.kernel<FusedElementwise>("_FusedElementwise", DeviceKind::kCpu);
}

}  // namespace millrace
