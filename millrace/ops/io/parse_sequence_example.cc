#include <algorithm>

#include "millrace/io/feature_list_parser.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/io/example_specs.h"

namespace millrace {
namespace {

using Form = FeatureListSpec::Form;

// Which of three ops a node is: they differ in where keys stand, in what a batch is, and in ragged
// features.
enum class Kind : uint8_t {
  kSingle,  // ParseSingleSequenceExample: one example, keys are scalars
  kBatch,   // ParseSequenceExample: a vector, keys are attributes
  kAny,     // ParseSequenceExampleV2: a vector or one, keys are vectors
};

// Features in the order sparse, dense, ragged.
struct Specs {
  std::vector<FeatureSpec> context;
  std::vector<FeatureListSpec> lists;
  size_t context_sparse = 0, context_dense = 0, context_ragged = 0;
  size_t list_sparse = 0, list_dense = 0, list_ragged = 0;
};

using Types = std::vector<DType>;

Result<Specs> read_specs(const AttrMap& attrs, Kind kind) {
  Specs specs;
  MR_TRY_ASSIGN(const Types sparse, read_attr<Types>(attrs, "context_sparse_types"));
  MR_TRY_ASSIGN(const Types dense, read_attr<Types>(attrs, "Tcontext_dense"));
  MR_TRY_ASSIGN(const auto shapes,
                read_attr<std::vector<PartialShape>>(attrs, "context_dense_shapes"));
  MR_TRY_ASSIGN(const Types list_sparse, read_attr<Types>(attrs, "feature_list_sparse_types"));
  MR_TRY_ASSIGN(const Types list_dense, read_attr<Types>(attrs, "feature_list_dense_types"));
  MR_TRY_ASSIGN(const auto list_shapes,
                read_attr<std::vector<PartialShape>>(attrs, "feature_list_dense_shapes"));
  const auto same = [&](std::string_view attr, size_t size) -> Status {
    MR_TRY_ASSIGN(const int64_t expected, read_attr<int64_t>(attrs, attr));
    if (expected == static_cast<int64_t>(size)) return ok_status();
    return invalid_argument(attr, " is ", expected, " but there are ", size, " types");
  };
  MR_TRY(same("Ncontext_sparse", sparse.size()));
  MR_TRY(same("Nfeature_list_sparse", list_sparse.size()));
  MR_TRY(same("Nfeature_list_dense", list_dense.size()));
  if (kind != Kind::kAny) MR_TRY(same("Ncontext_dense", dense.size()));
  if (list_dense.size() != list_shapes.size()) {
    return invalid_argument("expected a shape for each of ", list_dense.size(),
                            " dense feature lists, got ", list_shapes.size());
  }
  for (const DType type : sparse) {
    specs.context.push_back({.dtype = type, .form = FeatureSpec::Form::kSparse});
  }
  MR_TRY_ASSIGN(const std::vector<FeatureSpec> dense_context, dense_specs(dense, shapes));
  specs.context.insert(specs.context.end(), dense_context.begin(), dense_context.end());
  for (const DType type : list_sparse)
    specs.lists.push_back({.dtype = type, .form = Form::kSparse});
  for (size_t i = 0; i < list_dense.size(); ++i) {
    MR_TRY_ASSIGN(const FeatureSpec spec, FeatureSpec::dense(list_dense[i], list_shapes[i]));
    if (spec.form != FeatureSpec::Form::kFixed) {
      return invalid_argument("the shape of a step of a dense feature list must be known, got ",
                              list_shapes[i]);
    }
    specs.lists.push_back({.dtype = list_dense[i], .shape = spec.shape});
  }
  specs.context_sparse = sparse.size();
  specs.context_dense = dense.size();
  specs.list_sparse = list_sparse.size();
  specs.list_dense = list_dense.size();
  if (kind != Kind::kAny) return specs;
  MR_TRY_ASSIGN(const Types ragged, read_attr<Types>(attrs, "context_ragged_value_types"));
  MR_TRY_ASSIGN(const Types splits, read_attr<Types>(attrs, "context_ragged_split_types"));
  MR_TRY_ASSIGN(const Types list_ragged,
                read_attr<Types>(attrs, "feature_list_ragged_value_types"));
  MR_TRY_ASSIGN(const Types list_splits,
                read_attr<Types>(attrs, "feature_list_ragged_split_types"));
  if (ragged.size() != splits.size() || list_ragged.size() != list_splits.size()) {
    return invalid_argument("every ragged feature needs a type of values and one of splits");
  }
  for (size_t i = 0; i < ragged.size(); ++i) {
    specs.context.push_back(
        {.dtype = ragged[i], .form = FeatureSpec::Form::kRagged, .splits_dtype = splits[i]});
  }
  for (size_t i = 0; i < list_ragged.size(); ++i) {
    specs.lists.push_back(
        {.dtype = list_ragged[i], .form = Form::kRagged, .splits_dtype = list_splits[i]});
  }
  specs.context_ragged = ragged.size();
  specs.list_ragged = list_ragged.size();
  return specs;
}

template <Kind kKind>
Status check_inputs(const ShapeContext& c, const Specs& specs, const PartialShape& batch) {
  const auto dense = std::span(specs.context).subspan(specs.context_sparse, specs.context_dense);
  if constexpr (kKind == Kind::kBatch) {
    MR_TRY(check_names(c, 1, batch, false));
    return check_defaults(c, 2, dense);
  } else if constexpr (kKind == Kind::kAny) {
    MR_TRY(check_names(c, 1, batch, true));
    int at = 2;
    for (const size_t size :
         {specs.context_sparse, specs.context_dense, specs.context_ragged, specs.list_sparse,
          specs.list_dense, specs.list_ragged, specs.list_dense}) {
      MR_TRY(check_keys(c, at++, size));
    }
    return check_defaults(c, at, dense);
  } else {
    MR_TRY(c.with_rank(1, 1).status());
    int at = 2;
    for (size_t i = 0; i < specs.context.size() + specs.lists.size(); ++i) {
      MR_TRY(c.with_rank(at++, 0).status());
    }
    MR_TRY(check_defaults(c, at, dense));
    return check_names(c, at + static_cast<int>(specs.context_dense), batch, true);
  }
}

template <Kind kKind>
Status sequence_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const Specs specs, read_specs(c.attrs(), kKind));
  MR_TRY_ASSIGN(const PartialShape batch, kKind == Kind::kSingle  ? c.with_rank(0, 0)
                                          : kKind == Kind::kBatch ? c.with_rank(0, 1)
                                                                  : c.with_rank_at_most(0, 1));
  MR_TRY(check_inputs<kKind>(c, specs, batch));
  const int64_t any = PartialShape::kUnknownDim;
  const auto shapes = [&](std::string_view attr) {
    return c.attr<std::vector<PartialShape>>(attr);
  };
  MR_TRY_ASSIGN(const auto context_shapes, shapes("context_dense_shapes"));
  MR_TRY_ASSIGN(const auto list_shapes, shapes("feature_list_dense_shapes"));
  const auto count = [](size_t n) { return static_cast<int>(n); };
  int at = 0;
  if (batch.rank_known()) set_sparse_shapes(c, at, specs.context_sparse, batch.rank() + 1);
  at += 3 * count(specs.context_sparse);
  for (const PartialShape& shape : context_shapes) {
    MR_TRY_ASSIGN(PartialShape out, dense_output_shape(batch, shape));
    c.set_output(at++, std::move(out));
  }
  for (int i = 0; i < 2 * count(specs.context_ragged); ++i) c.set_output(at++, PartialShape{any});
  if (batch.rank_known()) set_sparse_shapes(c, at, specs.list_sparse, batch.rank() + 2);
  at += 3 * count(specs.list_sparse);
  PartialShape steps = batch;
  if (steps.rank_known()) steps.add_dim(any);
  for (const PartialShape& shape : list_shapes) {
    MR_TRY_ASSIGN(PartialShape out, dense_output_shape(steps, shape));
    c.set_output(at++, std::move(out));
  }
  if constexpr (kKind == Kind::kSingle) return ok_status();
  for (size_t i = 0; i < specs.list_dense; ++i) c.set_output(at++, batch);
  for (int i = 0; i < 3 * count(specs.list_ragged); ++i) c.set_output(at++, PartialShape{any});
  return ok_status();
}

// What a node's inputs are, in the order of the op's definition.
struct Inputs {
  std::span<const std::string> names;
  int first_default = 0;
};

template <Kind kKind>
class ParseSequenceExample : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(Specs specs, read_specs(node.attrs, kKind));
    if constexpr (kKind == Kind::kBatch) {
      std::vector<std::string> keys;
      for (const std::string_view attr : {"context_sparse_keys", "context_dense_keys",
                                          "feature_list_sparse_keys", "feature_list_dense_keys"}) {
        MR_TRY_ASSIGN(const auto some, node.attr<std::vector<std::string>>(attr));
        keys.insert(keys.end(), some.begin(), some.end());
      }
      MR_TRY(set_keys(specs, keys));
      MR_TRY_ASSIGN(const auto empty, node.attr<std::vector<std::string>>(
                                          "feature_list_dense_missing_assumed_empty"));
      allow_missing(specs, empty);
    }
    return std::make_unique<ParseSequenceExample>(std::move(specs));
  }
  explicit ParseSequenceExample(Specs specs) : specs_(std::move(specs)) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor& serialized = ctx.input(0);
    const int rank = serialized.rank();
    if (kKind == Kind::kSingle ? rank != 0 : kKind == Kind::kBatch ? rank != 1 : rank > 1) {
      return invalid_argument("Expected serialized to be a ",
                              kKind == Kind::kSingle ? "scalar" : "vector",
                              ", got shape: ", serialized.shape());
    }
    Specs specs = specs_;
    MR_TRY_ASSIGN(const Inputs inputs, read_inputs(ctx, specs));
    const bool single = rank == 0;
    std::vector<Tensor> defaults(specs.context.size());
    for (size_t i = 0; i < specs.context_dense; ++i) {
      defaults[specs.context_sparse + i] = ctx.input(inputs.first_default + static_cast<int>(i));
    }
    const std::span<const std::string> examples = serialized.data<std::string>();
    MR_TRY_ASSIGN(const auto context, ExampleParser::make(std::move(specs.context),
                                                          {.context = true, .single = single}));
    MR_TRY_ASSIGN(const auto lists, FeatureListParser::make(std::move(specs.lists), single));
    MR_TRY_ASSIGN(std::vector<ParsedFeature> features,
                  context->parse(
                      {.serialized = examples, .names = inputs.names, .defaults = defaults},
                      [&](int64_t n, double cost, FunctionRef<void(int64_t, int64_t)> body) {
                        ctx.parallel_for(n, cost, body);
                      },
                      ctx.device().allocator()));
    MR_TRY_ASSIGN(std::vector<ParsedFeatureList> parsed,
                  lists->parse(examples, inputs.names, ctx.device().allocator()));
    set_outputs(ctx, features, parsed, single);
    return ok_status();
  }

 private:
  static Status set_keys(Specs& specs, std::span<const std::string> keys) {
    if (keys.size() != specs.context.size() + specs.lists.size()) {
      return invalid_argument("expected ", specs.context.size() + specs.lists.size(),
                              " keys in all, got ", keys.size());
    }
    for (FeatureSpec& spec : specs.context) {
      spec.key = keys.front();
      keys = keys.subspan(1);
    }
    for (FeatureListSpec& spec : specs.lists) {
      spec.key = keys.front();
      keys = keys.subspan(1);
    }
    return ok_status();
  }

  static void allow_missing(Specs& specs, std::span<const std::string> keys) {
    for (FeatureListSpec& spec : specs.lists) {
      spec.missing_is_empty = std::find(keys.begin(), keys.end(), spec.key) != keys.end();
    }
  }

  Result<Inputs> read_inputs(const KernelContext& ctx, Specs& specs) const {
    if constexpr (kKind == Kind::kBatch) {
      MR_TRY(check_names(ctx, 1, ctx.input(0), false));
      return Inputs{ctx.input(1).data<std::string>(), 2};
    } else if constexpr (kKind == Kind::kAny) {
      return read_vectors(ctx, specs);
    } else {
      return read_scalars(ctx, specs);
    }
  }

  Result<Inputs> read_scalars(const KernelContext& ctx, Specs& specs) const {
    int at = 2;
    std::vector<std::string> keys;
    const size_t size = specs.context.size() + specs.lists.size();
    while (keys.size() < size) {
      MR_TRY_ASSIGN(keys.emplace_back(), key_input(ctx, at++, "a key"));
    }
    MR_TRY(set_keys(specs, keys));
    const Tensor& empty = ctx.input(1);
    if (empty.rank() != 1) {
      return invalid_argument(
          "Expected feature_list_dense_missing_assumed_empty to be a vector, got shape: ",
          empty.shape());
    }
    allow_missing(specs, empty.data<std::string>());
    const int defaults = at;
    const int name = at + static_cast<int>(specs.context_dense);
    MR_TRY(check_names(ctx, name, ctx.input(0), true));
    return Inputs{ctx.input(name).data<std::string>(), defaults};
  }

  Result<Inputs> read_vectors(const KernelContext& ctx, Specs& specs) const {
    const std::pair<std::string_view, size_t> kinds[] = {
        {"context_sparse_keys", specs.context_sparse},
        {"context_dense_keys", specs.context_dense},
        {"context_ragged_keys", specs.context_ragged},
        {"feature_list_sparse_keys", specs.list_sparse},
        {"feature_list_dense_keys", specs.list_dense},
        {"feature_list_ragged_keys", specs.list_ragged}};
    int at = 2;
    std::vector<std::string> keys;
    for (const auto& [what, size] : kinds) {
      MR_TRY_ASSIGN(const std::vector<std::string> some, keys_input(ctx, at++, what, size));
      keys.insert(keys.end(), some.begin(), some.end());
    }
    MR_TRY(set_keys(specs, keys));
    const Tensor& empty = ctx.input(at++);
    if (empty.rank() != 1 || empty.dim(0) != static_cast<int64_t>(specs.list_dense)) {
      return invalid_argument(
          "Expected feature_list_dense_missing_assumed_empty to be a vector of ", specs.list_dense,
          ", got shape: ", empty.shape());
    }
    for (size_t i = 0; i < specs.list_dense; ++i) {
      specs.lists[specs.list_sparse + i].missing_is_empty = empty.data<bool>()[i];
    }
    MR_TRY(check_names(ctx, 1, ctx.input(0), true));
    return Inputs{ctx.input(1).data<std::string>(), at};
  }

  void set_outputs(KernelContext& ctx, std::span<ParsedFeature> context,
                   std::span<ParsedFeatureList> lists, bool single) const {
    int at = 0;
    set_sparse_outputs(ctx, at, context.first(specs_.context_sparse));
    at += 3 * static_cast<int>(specs_.context_sparse);
    for (ParsedFeature& dense : context.subspan(specs_.context_sparse, specs_.context_dense)) {
      ctx.set_output(at++, std::move(dense.values));
    }
    for (ParsedFeature& ragged : context.last(specs_.context_ragged)) {
      ctx.set_output(at + static_cast<int>(specs_.context_ragged), std::move(ragged.splits));
      ctx.set_output(at++, std::move(ragged.values));
    }
    at += static_cast<int>(specs_.context_ragged);
    const int num_sparse = static_cast<int>(specs_.list_sparse);
    for (ParsedFeatureList& sparse : lists.first(specs_.list_sparse)) {
      ctx.set_output(at, std::move(sparse.indices));
      ctx.set_output(at + num_sparse, std::move(sparse.values));
      ctx.set_output(at++ + 2 * num_sparse, std::move(sparse.shape));
    }
    at += 2 * num_sparse;
    const int num_dense = static_cast<int>(specs_.list_dense);
    for (ParsedFeatureList& dense : lists.subspan(specs_.list_sparse, specs_.list_dense)) {
      if constexpr (kKind != Kind::kSingle) {
        ctx.set_output(at + num_dense, single ? dense.lengths.row(0) : std::move(dense.lengths));
      }
      ctx.set_output(at++, std::move(dense.values));
    }
    if constexpr (kKind != Kind::kSingle) at += num_dense;
    const int num_ragged = static_cast<int>(specs_.list_ragged);
    for (ParsedFeatureList& ragged : lists.last(specs_.list_ragged)) {
      ctx.set_output(at, std::move(ragged.values));
      ctx.set_output(at + num_ragged, std::move(ragged.outer_splits));
      ctx.set_output(at++ + 2 * num_ragged, std::move(ragged.inner_splits));
    }
  }

  const Specs specs_;
};

constexpr const char* kTypesOrNone = "list(type) >= 0 = [] in {float,int64,string}";
constexpr const char* kSplitsOrNone = "list(type) >= 0 = [] in {int32,int64}";
constexpr const char* kShapesOrNone = "list(shape) >= 0 = []";
constexpr const char* kCountOrNone = "int >= 0 = 0";

}  // namespace

void register_parse_sequence_example(Registry& registry) {
  const OpSpec::Arg sparse[] = {{"context_sparse_indices", "Ncontext_sparse*int64"},
                                {"context_sparse_values", "list(context_sparse_types)"},
                                {"context_sparse_shapes", "Ncontext_sparse*int64"}};
  const OpSpec::Arg list_sparse[] = {
      {"feature_list_sparse_indices", "Nfeature_list_sparse*int64"},
      {"feature_list_sparse_values", "list(feature_list_sparse_types)"},
      {"feature_list_sparse_shapes", "Nfeature_list_sparse*int64"}};
  const OpSpec::Arg dense = {"context_dense_values", "list(Tcontext_dense)"};
  const OpSpec::Arg list_dense = {"feature_list_dense_values", "list(feature_list_dense_types)"};
  const OpSpec::Arg lengths = {"feature_list_dense_lengths", "Nfeature_list_dense*int64"};
  const OpSpec::Arg defaults = {"context_dense_defaults", "list(Tcontext_dense)"};
  const std::vector<OpSpec::Attr> attrs = {
      {"Ncontext_sparse", kCountOrNone},           {"Ncontext_dense", kCountOrNone},
      {"Nfeature_list_sparse", kCountOrNone},      {"Nfeature_list_dense", kCountOrNone},
      {"context_sparse_types", kTypesOrNone},      {"Tcontext_dense", kTypesOrNone},
      {"feature_list_dense_types", kTypesOrNone},  {"context_dense_shapes", kShapesOrNone},
      {"feature_list_sparse_types", kTypesOrNone}, {"feature_list_dense_shapes", kShapesOrNone}};
  OpSpec spec = {.name = "ParseSingleSequenceExample",
                 .doc = "One serialized SequenceExample into tensors.",
                 .inputs = {{"serialized", "string"},
                            {"feature_list_dense_missing_assumed_empty", "string"},
                            {"context_sparse_keys", "Ncontext_sparse*string"},
                            {"context_dense_keys", "Ncontext_dense*string"},
                            {"feature_list_sparse_keys", "Nfeature_list_sparse*string"},
                            {"feature_list_dense_keys", "Nfeature_list_dense*string"},
                            defaults,
                            {"debug_name", "string"}},
                 .outputs = {sparse[0], sparse[1], sparse[2], dense, list_sparse[0], list_sparse[1],
                             list_sparse[2], list_dense},
                 .attrs = attrs,
                 .traits = {.cannot_differentiate = true, .cost = 1000},
                 .shape = sequence_shape<Kind::kSingle>,
                 .no_gradient = "read text and messages"};
  registry.add(spec);
  registry.kernel<ParseSequenceExample<Kind::kSingle>>("ParseSingleSequenceExample",
                                                       DeviceKind::kCpu);
  std::vector<OpSpec::Attr> keys;
  for (const char* name :
       {"feature_list_dense_missing_assumed_empty", "context_sparse_keys", "context_dense_keys",
        "feature_list_sparse_keys", "feature_list_dense_keys"}) {
    keys.push_back({std::string_view(name), "list(string) >= 0"});
  }
  keys.insert(keys.end(), attrs.begin(), attrs.end());
  spec.name = "ParseSequenceExample";
  spec.doc = "Serialized SequenceExamples into tensors.";
  spec.inputs = {{"serialized", "string"}, {"debug_name", "string"}, defaults};
  spec.outputs.push_back(lengths);
  spec.attrs = keys;
  spec.shape = sequence_shape<Kind::kBatch>;
  registry.add(spec);
  registry.kernel<ParseSequenceExample<Kind::kBatch>>("ParseSequenceExample", DeviceKind::kCpu);
  spec.name = "ParseSequenceExampleV2";
  spec.doc = "Serialized SequenceExamples, a vector or a single one, into tensors.";
  spec.inputs = {{"serialized", "string"},
                 {"debug_name", "string"},
                 {"context_sparse_keys", "string"},
                 {"context_dense_keys", "string"},
                 {"context_ragged_keys", "string"},
                 {"feature_list_sparse_keys", "string"},
                 {"feature_list_dense_keys", "string"},
                 {"feature_list_ragged_keys", "string"},
                 {"feature_list_dense_missing_assumed_empty", "bool"},
                 defaults};
  spec.outputs = {sparse[0],
                  sparse[1],
                  sparse[2],
                  dense,
                  {"context_ragged_values", "list(context_ragged_value_types)"},
                  {"context_ragged_row_splits", "list(context_ragged_split_types)"},
                  list_sparse[0],
                  list_sparse[1],
                  list_sparse[2],
                  list_dense,
                  lengths,
                  {"feature_list_ragged_values", "list(feature_list_ragged_value_types)"},
                  {"feature_list_ragged_outer_splits", "list(feature_list_ragged_split_types)"},
                  {"feature_list_ragged_inner_splits", "list(feature_list_ragged_split_types)"}};
  spec.attrs = {{"Ncontext_sparse", kCountOrNone},
                {"Tcontext_dense", kTypesOrNone},
                {"context_sparse_types", kTypesOrNone},
                {"context_ragged_value_types", kTypesOrNone},
                {"context_ragged_split_types", kSplitsOrNone},
                {"context_dense_shapes", kShapesOrNone},
                {"Nfeature_list_sparse", kCountOrNone},
                {"Nfeature_list_dense", kCountOrNone},
                {"feature_list_dense_types", kTypesOrNone},
                {"feature_list_sparse_types", kTypesOrNone},
                {"feature_list_ragged_value_types", kTypesOrNone},
                {"feature_list_ragged_split_types", kSplitsOrNone},
                {"feature_list_dense_shapes", kShapesOrNone}};
  spec.shape = sequence_shape<Kind::kAny>;
  registry.add(spec);
  registry.kernel<ParseSequenceExample<Kind::kAny>>("ParseSequenceExampleV2", DeviceKind::kCpu);
}

}  // namespace millrace
