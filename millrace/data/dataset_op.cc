#include "millrace/data/dataset_op.h"

#include <algorithm>

#include "millrace/graph/shape_context.h"

namespace millrace::data {
namespace {

// Iterators call each other, so a tree of any depth would need a stack of any depth.
constexpr int kMaxDepth = 2000;

Result<ElementSpec> read_spec(const AttrMap& attrs, std::string_view types) {
  ElementSpec spec;
  MR_TRY_ASSIGN(spec.types, read_attr<std::vector<DType>>(attrs, types));
  MR_TRY_ASSIGN(spec.shapes, read_attr<std::vector<PartialShape>>(attrs, "output_shapes"));
  if (spec.types.size() == spec.shapes.size()) return spec;
  return invalid_argument(types, " and output_shapes must have one length, got ", spec.types.size(),
                          " and ", spec.shapes.size());
}

// What lists files and the like: vectors, and some may be scalars.
bool is_vector(const ArgDef& arg) {
  for (const char* name :
       {"filenames", "optimizations", "optimizations_enabled", "optimizations_disabled",
        "optimizations_default", "transformations", "batch_sizes", "row_shape", "byte_offsets"}) {
    if (arg.name == name) return true;
  }
  return false;
}

// Most ops have the attribute; graphs for TensorFlow must not have it where its op does not.
bool has_metadata(std::string_view op) {
  constexpr std::string_view kWithout[] = {"AssertCardinalityDataset",
                                           "AssertNextDataset",
                                           "BytesProducedStatsDataset",
                                           "ChooseFastestDataset",
                                           "DenseToSparseBatchDataset",
                                           "DirectedInterleaveDataset",
                                           "ParseExampleDataset",
                                           "ParseExampleDatasetV2",
                                           "FinalizeDataset",
                                           "GroupByReducerDataset",
                                           "IgnoreErrorsDataset",
                                           "LatencyStatsDataset",
                                           "MaxIntraOpParallelismDataset",
                                           "ModelDataset",
                                           "NonSerializableDataset",
                                           "OptimizeDataset",
                                           "OptimizeDatasetV2",
                                           "PrivateThreadPoolDataset",
                                           "RebatchDatasetV2",
                                           "RewriteDataset",
                                           "SamplingDataset",
                                           "ThreadPoolDataset"};
  if (op.starts_with("Experimental")) return false;
  return std::find(std::begin(kWithout), std::end(kWithout), op) == std::end(kWithout);
}

// Datasets and what they are told, sizes, seeds, names, are scalars; what functions capture and
// elements are made of has any shape. Calls check(i, rank) for each input that has a highest rank;
// types and shapes of elements must be as many.
template <class Check>
Status check_call(const OpDef& op, const AttrMap& attrs, Check check) {
  int i = 0;
  for (const ArgDef& arg : op.inputs) {
    if (!arg.type_list_attr.empty()) {
      MR_TRY_ASSIGN(const auto types, read_attr<std::vector<DType>>(attrs, arg.type_list_attr));
      i += static_cast<int>(types.size());
    } else if (!arg.number_attr.empty()) {
      MR_TRY_ASSIGN(const int64_t count, read_attr<int64_t>(attrs, arg.number_attr));
      i += static_cast<int>(count);
    } else {
      if (arg.dtype != DType::kInvalid && arg.dtype != DType::kResource) {
        MR_TRY(check(i, is_vector(arg) ? 1 : 0));
      }
      ++i;
    }
  }
  for (const char* types : {"output_types", "Toutput_types"}) {
    if (op.find_attr(types) != nullptr && op.find_attr("output_shapes") != nullptr) {
      MR_TRY(read_spec(attrs, types).status());
    }
  }
  return ok_status();
}

}  // namespace

Status dataset_shape(ShapeContext& c) {
  MR_TRY(check_call(c.op(), c.attrs(),
                    [&](int i, int rank) { return c.with_rank_at_most(i, rank).status(); }));
  return shape_rules::scalar(c);
}

Status check_call(const KernelContext& ctx) {
  return check_call(*ctx.node().op, ctx.node().attrs, [&](int i, int rank) {
    if (ctx.input(i).rank() <= rank) return ok_status();
    return invalid_argument("input ", i, " must be a scalar", rank > 0 ? " or a vector" : "",
                            ", got shape ", ctx.input(i).shape());
  });
}

void add_source_op(Registry& registry, OpSpec spec, KernelFunction kernel) {
  spec.outputs = {{"handle", "variant"}};
  // Datasets live on the host, and so does what they are made of.
  for (OpSpec::Arg& input : spec.inputs) input.type = str_cat("host(", input.type, ")");
  if (has_metadata(spec.name)) {
    spec.attrs.push_back({"metadata", "string = ''", "For people; not used."});
  }
  if (spec.shape == nullptr) spec.shape = dataset_shape;
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
  return read_spec(node.attrs, types);
}

Result<Closure> closure_of(const KernelContext& ctx, std::string_view name, int first, int count) {
  Closure closure;
  MR_TRY_ASSIGN(closure.function, ctx.node().attr<FunctionAttr>(name));
  MR_TRY_ASSIGN(closure.captured, kept_inputs(ctx, first, count));
  return closure;
}

Result<std::vector<Closure>> closures_of(const KernelContext& ctx, int first,
                                         std::initializer_list<const char*> names,
                                         std::string_view suffix) {
  std::vector<Closure> closures;
  for (const char* name : names) {
    MR_TRY_ASSIGN(const int count, type_count(ctx.node(), str_cat("T", name, suffix)));
    MR_TRY_ASSIGN(Closure closure, closure_of(ctx, name, first, count));
    closures.push_back(std::move(closure));
    first += count;
  }
  return closures;
}

Result<int> type_count(const KernelNode& node, std::string_view attr) {
  MR_TRY_ASSIGN(const std::vector<DType> types, node.attr<std::vector<DType>>(attr));
  return static_cast<int>(types.size());
}

Result<Element> kept_inputs(const KernelContext& ctx, int first, int count) {
  Element inputs;
  for (int i = first; i < first + count; ++i) {
    MR_TRY_ASSIGN(Tensor input, kept_input(ctx, i));
    inputs.push_back(std::move(input));
  }
  return inputs;
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

Status element_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const ElementSpec spec, read_spec(c.attrs(), "output_types"));
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, spec.shapes[static_cast<size_t>(i)]);
  return ok_status();
}

Status element_handle_shape(ShapeContext& c) {
  MR_TRY(read_spec(c.attrs(), "output_types").status());
  return shape_rules::scalar(c);
}

Status set_element(KernelContext& ctx, Element element, const ElementSpec& spec) {
  MR_TRY(check_element(element, spec));
  for (size_t i = 0; i < element.size(); ++i) {
    ctx.set_output(static_cast<int>(i), std::move(element[i]));
  }
  return ok_status();
}

}  // namespace millrace::data
