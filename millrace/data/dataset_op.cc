#include "millrace/data/dataset_op.h"

#include "millrace/graph/shape_context.h"

namespace millrace::data {
namespace {

// Iterators call each other, so a tree of any depth would need a stack of any depth.
constexpr int kMaxDepth = 2000;

}  // namespace

void add_source_op(Registry& registry, OpSpec spec, KernelFunction kernel) {
  spec.outputs = {{"handle", "variant"}};
  // Datasets live on the host, and so does what they are made of.
  for (OpSpec::Arg& input : spec.inputs) input.type = str_cat("host(", input.type, ")");
  spec.attrs.push_back({"metadata", "string = ''", "For people; not used."});
  spec.shape = shape_rules::scalar;
  spec.traits.cannot_differentiate = true;
  spec.no_gradient = "make datasets";
  const SpecText name = spec.name;
  registry.add(spec);
  registry.kernel(name, DeviceKind::kCpu, kernel);
}

void add_dataset_op(Registry& registry, OpSpec spec, KernelFunction kernel) {
  spec.attrs.push_back({"output_types", "list(type) >= 1", "Of the components of an element."});
  spec.attrs.push_back({"output_shapes", "list(shape) >= 1", "Of the components of an element."});
  add_source_op(registry, std::move(spec), kernel);
}

Result<Ref<Dataset>> dataset_input(const KernelContext& ctx, int i) {
  MR_TRY(ctx.check_host(i));
  Result<Ref<Dataset>> dataset = dataset_of(ctx.input(i));
  if (!dataset.ok()) return dataset.status().with_prefix(str_cat("input ", i));
  if ((*dataset)->depth() >= kMaxDepth) {
    return invalid_argument("input ", i, " is a dataset of ", kMaxDepth,
                            " stages one after the other, more than can be iterated");
  }
  return dataset;
}

Result<std::vector<Ref<Dataset>>> dataset_inputs(const KernelContext& ctx) {
  std::vector<Ref<Dataset>> inputs;
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, i));
    inputs.push_back(std::move(input));
  }
  return inputs;
}

Result<ElementSpec> spec_of(const KernelNode& node, std::string_view types) {
  ElementSpec spec;
  MR_TRY_ASSIGN(spec.types, node.attr<std::vector<DType>>(types));
  MR_TRY_ASSIGN(spec.shapes, node.attr<std::vector<PartialShape>>("output_shapes"));
  if (spec.types.size() == spec.shapes.size()) return spec;
  return invalid_argument(types, " and output_shapes must have one length, got ", spec.types.size(),
                          " and ", spec.shapes.size());
}

Result<Closure> closure_of(const KernelContext& ctx, std::string_view name, int first, int count) {
  Closure closure;
  MR_TRY_ASSIGN(closure.function, ctx.node().attr<FunctionAttr>(name));
  for (int i = first; i < first + count; ++i) {
    MR_TRY_ASSIGN(Tensor captured, kept_input(ctx, i));
    closure.captured.push_back(std::move(captured));
  }
  return closure;
}

Result<int> type_count(const KernelNode& node, std::string_view attr) {
  MR_TRY_ASSIGN(const std::vector<DType> types, node.attr<std::vector<DType>>(attr));
  return static_cast<int>(types.size());
}

Result<Tensor> kept_input(const KernelContext& ctx, int i) {
  const Tensor& input = ctx.input(i);
  if (input.buffer() && input.buffer()->borrowed()) return input.clone();
  return input;
}

Result<std::string> string_input(const KernelContext& ctx, int i) {
  return ctx.scalar_input<std::string>(i);
}

Result<int64_t> count_input(const KernelContext& ctx, int i, std::string_view name, int64_t least) {
  MR_TRY_ASSIGN(const int64_t value, ctx.int_scalar_input(i));
  if (value < least) {
    return invalid_argument(name, " must be greater than ", least - 1, ", got ", value);
  }
  return value;
}

}  // namespace millrace::data
