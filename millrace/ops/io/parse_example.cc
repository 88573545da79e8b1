#include "millrace/kernel/registry.h"
#include "millrace/ops/io/example_specs.h"

namespace millrace {
namespace {

using Form = FeatureSpec::Form;

// What the attributes say. Specs are in the order sparse, dense, ragged; of some ops keys come with
// the inputs.
struct Specs {
  std::vector<FeatureSpec> all;
  size_t num_sparse = 0, num_dense = 0, num_ragged = 0;
  std::span<const FeatureSpec> dense() const {
    return std::span(all).subspan(num_sparse, num_dense);
  }
};

Result<Specs> read_specs(const AttrMap& attrs, std::string_view num_sparse, bool ragged) {
  Specs specs;
  MR_TRY_ASSIGN(const auto sparse_types, read_attr<std::vector<DType>>(attrs, "sparse_types"));
  MR_TRY_ASSIGN(const auto dense_types, read_attr<std::vector<DType>>(attrs, "Tdense"));
  MR_TRY_ASSIGN(const auto shapes, read_attr<std::vector<PartialShape>>(attrs, "dense_shapes"));
  const auto same = [&](std::string_view attr, size_t size) -> Status {
    MR_TRY_ASSIGN(const int64_t expected, read_attr<int64_t>(attrs, attr));
    if (expected == static_cast<int64_t>(size)) return ok_status();
    return invalid_argument(attr, " is ", expected, " but there are ", size, " types");
  };
  MR_TRY(same(num_sparse, sparse_types.size()));
  if (attrs.find("Ndense") != nullptr) MR_TRY(same("Ndense", dense_types.size()));
  for (const DType type : sparse_types) {
    specs.all.push_back({.dtype = type, .form = Form::kSparse});
  }
  MR_TRY_ASSIGN(const std::vector<FeatureSpec> dense, dense_specs(dense_types, shapes));
  specs.all.insert(specs.all.end(), dense.begin(), dense.end());
  specs.num_sparse = sparse_types.size();
  specs.num_dense = dense_types.size();
  if (!ragged) return specs;
  MR_TRY_ASSIGN(const auto values, read_attr<std::vector<DType>>(attrs, "ragged_value_types"));
  MR_TRY_ASSIGN(const auto splits, read_attr<std::vector<DType>>(attrs, "ragged_split_types"));
  if (values.size() != splits.size()) {
    return invalid_argument("expected a type of splits for each of ", values.size(),
                            " ragged features, got ", splits.size());
  }
  for (size_t i = 0; i < values.size(); ++i) {
    specs.all.push_back({.dtype = values[i], .form = Form::kRagged, .splits_dtype = splits[i]});
  }
  specs.num_ragged = values.size();
  return specs;
}

// Output shapes for examples whose batch has the shape `batch`: a vector, a scalar, or unknown.
Status set_shapes(ShapeContext& c, const Specs& specs, const PartialShape& batch) {
  MR_TRY_ASSIGN(const auto shapes, c.attr<std::vector<PartialShape>>("dense_shapes"));
  const int sparse = static_cast<int>(specs.num_sparse), dense = static_cast<int>(specs.num_dense),
            ragged = static_cast<int>(specs.num_ragged);
  if (batch.rank_known()) set_sparse_shapes(c, 0, specs.num_sparse, batch.rank() + 1);
  for (int i = 0; i < dense; ++i) {
    MR_TRY_ASSIGN(PartialShape shape, dense_output_shape(batch, shapes[static_cast<size_t>(i)]));
    c.set_output(3 * sparse + i, std::move(shape));
  }
  for (int i = 0; i < ragged; ++i) {
    c.set_output(3 * sparse + dense + i, PartialShape{PartialShape::kUnknownDim});
    c.set_output(3 * sparse + dense + ragged + i, PartialShape{PartialShape::kUnknownDim});
  }
  return ok_status();
}

Status parse_example_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const Specs specs, read_specs(c.attrs(), "Nsparse", false));
  MR_TRY_ASSIGN(const PartialShape batch, c.with_rank(0, 1));
  MR_TRY(check_names(c, 1, batch, false));
  const int keys = static_cast<int>(specs.num_sparse + specs.num_dense);
  for (int i = 0; i < keys; ++i) MR_TRY(c.with_rank(2 + i, 0).status());
  MR_TRY(check_defaults(c, 2 + keys, specs.dense()));
  return set_shapes(c, specs, batch);
}

Status parse_example_v2_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const Specs specs, read_specs(c.attrs(), "num_sparse", true));
  MR_TRY_ASSIGN(const PartialShape batch, c.with_rank_at_most(0, 1));
  MR_TRY(check_names(c, 1, batch, true));
  MR_TRY(check_keys(c, 2, specs.num_sparse));
  MR_TRY(check_keys(c, 3, specs.num_dense));
  MR_TRY(check_keys(c, 4, specs.num_ragged));
  MR_TRY(check_defaults(c, 5, specs.dense()));
  return set_shapes(c, specs, batch);
}

Status parse_single_example_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const Specs specs, read_specs(c.attrs(), "num_sparse", false));
  MR_TRY(c.with_rank(0, 0).status());
  MR_TRY(check_defaults(c, 1, specs.dense()));
  return set_shapes(c, specs, PartialShape::scalar());
}

// Parses and sets the outputs. `first_default` is the input with the first dense default.
Status run(KernelContext& ctx, const ExampleParser& parser, const Specs& specs,
           std::span<const std::string> names, int first_default) {
  std::vector<Tensor> defaults(specs.all.size());
  for (size_t i = 0; i < specs.num_dense; ++i) {
    defaults[specs.num_sparse + i] = ctx.input(first_default + static_cast<int>(i));
  }
  MR_TRY_ASSIGN(
      std::vector<ParsedFeature> parsed,
      parser.parse(
          {.serialized = ctx.input(0).data<std::string>(), .names = names, .defaults = defaults},
          [&](int64_t n, double cost, FunctionRef<void(int64_t, int64_t)> body) {
            ctx.parallel_for(n, cost, body);
          },
          ctx.device().allocator()));
  const std::span<ParsedFeature> all = parsed;
  set_sparse_outputs(ctx, 0, all.first(specs.num_sparse));
  int at = 3 * static_cast<int>(specs.num_sparse);
  for (ParsedFeature& dense : all.subspan(specs.num_sparse, specs.num_dense)) {
    ctx.set_output(at++, std::move(dense.values));
  }
  const int num_ragged = static_cast<int>(specs.num_ragged);
  for (ParsedFeature& ragged : all.last(specs.num_ragged)) {
    ctx.set_output(at, std::move(ragged.values));
    ctx.set_output(at++ + num_ragged, std::move(ragged.splits));
  }
  return ok_status();
}

std::span<const std::string> strings_input(const KernelContext& ctx, int i) {
  return ctx.input(i).data<std::string>();
}

// Keys are inputs: one scalar for each, or a vector for each kind.
template <bool kVectors>
class ParseExample : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(Specs specs,
                  read_specs(node.attrs, kVectors ? "num_sparse" : "Nsparse", kVectors));
    return std::make_unique<ParseExample>(std::move(specs));
  }
  explicit ParseExample(Specs specs) : specs_(std::move(specs)) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor& serialized = ctx.input(0);
    if (serialized.rank() > 1 || (!kVectors && serialized.rank() != 1)) {
      return invalid_argument("Expected serialized to be a vector", kVectors ? " or a scalar" : "",
                              ", got shape: ", serialized.shape());
    }
    MR_TRY(check_names(ctx, 1, serialized, kVectors));
    std::vector<FeatureSpec> all = specs_.all;
    int at = 2;
    if constexpr (kVectors) {
      const std::pair<std::string_view, size_t> kinds[] = {{"sparse_keys", specs_.num_sparse},
                                                           {"dense_keys", specs_.num_dense},
                                                           {"ragged_keys", specs_.num_ragged}};
      size_t spec = 0;
      for (const auto& [what, size] : kinds) {
        MR_TRY_ASSIGN(std::vector<std::string> keys, keys_input(ctx, at++, what, size));
        for (std::string& key : keys) all[spec++].key = std::move(key);
      }
    } else {
      for (FeatureSpec& spec : all) {
        MR_TRY_ASSIGN(spec.key, key_input(ctx, at++, "a key"));
      }
    }
    const bool single = serialized.rank() == 0;
    MR_TRY_ASSIGN(const auto parser, ExampleParser::make(std::move(all), {.single = single}));
    return run(ctx, *parser, specs_, strings_input(ctx, 1), at);
  }

 private:
  const Specs specs_;
};

class ParseSingleExample : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(Specs specs, read_specs(node.attrs, "num_sparse", false));
    const std::pair<std::string_view, size_t> kinds[] = {{"sparse_keys", specs.num_sparse},
                                                         {"dense_keys", specs.num_dense}};
    size_t at = 0;
    for (const auto& [what, size] : kinds) {
      MR_TRY_ASSIGN(const auto keys, node.attr<std::vector<std::string>>(what));
      if (keys.size() != size) {
        return invalid_argument("expected ", size, " ", what, ", got ", keys.size());
      }
      for (const std::string& key : keys) specs.all[at++].key = key;
    }
    MR_TRY_ASSIGN(auto parser, ExampleParser::make(specs.all, {.single = true}));
    return std::make_unique<ParseSingleExample>(std::move(specs), std::move(parser));
  }
  ParseSingleExample(Specs specs, std::unique_ptr<ExampleParser> parser)
      : specs_(std::move(specs)), parser_(std::move(parser)) {}

  Status compute(KernelContext& ctx) const override {
    if (ctx.input(0).rank() != 0) {
      return invalid_argument("Expected serialized to be a scalar, got shape: ",
                              ctx.input(0).shape());
    }
    return run(ctx, *parser_, specs_, {}, 1);
  }

 private:
  const Specs specs_;
  const std::unique_ptr<ExampleParser> parser_;
};

}  // namespace

void register_parse_example(Registry& registry) {
  registry.add({.name = "ParseExample",
                .doc = "Serialized Examples into tensors.",
                .inputs = {{"serialized", "string"},
                           {"names", "string"},
                           {"sparse_keys", "Nsparse*string"},
                           {"dense_keys", "Ndense*string"},
                           {"dense_defaults", "list(Tdense)"}},
                .outputs = {{"sparse_indices", "Nsparse*int64"},
                            {"sparse_values", "list(sparse_types)"},
                            {"sparse_shapes", "Nsparse*int64"},
                            {"dense_values", "list(Tdense)"}},
                .attrs = {{"Nsparse", "int >= 0"},
                          {"Ndense", "int >= 0"},
                          {"sparse_types", kFeatureTypes},
                          {"Tdense", kFeatureTypes},
                          {"dense_shapes", "list(shape) >= 0"}},
                .traits = {.cannot_differentiate = true, .cost = 1000},
                .shape = parse_example_shape,
                .no_gradient = "read text and messages"});
  registry.kernel<ParseExample<false>>("ParseExample", DeviceKind::kCpu);
  registry.add({.name = "ParseExampleV2",
                .doc = "Serialized Examples, a vector or a single one, into tensors.",
                .inputs = {{"serialized", "string"},
                           {"names", "string"},
                           {"sparse_keys", "string"},
                           {"dense_keys", "string"},
                           {"ragged_keys", "string"},
                           {"dense_defaults", "list(Tdense)"}},
                .outputs = {{"sparse_indices", "num_sparse*int64"},
                            {"sparse_values", "list(sparse_types)"},
                            {"sparse_shapes", "num_sparse*int64"},
                            {"dense_values", "list(Tdense)"},
                            {"ragged_values", "list(ragged_value_types)"},
                            {"ragged_row_splits", "list(ragged_split_types)"}},
                .attrs = {{"Tdense", kFeatureTypes},
                          {"num_sparse", "int >= 0"},
                          {"sparse_types", kFeatureTypes},
                          {"ragged_value_types", kFeatureTypes},
                          {"ragged_split_types", "list(type) >= 0 in {int32,int64}"},
                          {"dense_shapes", "list(shape) >= 0"}},
                .traits = {.cannot_differentiate = true, .cost = 1000},
                .shape = parse_example_v2_shape,
                .no_gradient = "read text and messages"});
  registry.kernel<ParseExample<true>>("ParseExampleV2", DeviceKind::kCpu);
  registry.add({.name = "ParseSingleExample",
                .doc = "One serialized Example into tensors.",
                .inputs = {{"serialized", "string"}, {"dense_defaults", "list(Tdense)"}},
                .outputs = {{"sparse_indices", "num_sparse*int64"},
                            {"sparse_values", "list(sparse_types)"},
                            {"sparse_shapes", "num_sparse*int64"},
                            {"dense_values", "list(Tdense)"}},
                .attrs = {{"num_sparse", "int >= 0"},
                          {"sparse_keys", "list(string) >= 0"},
                          {"dense_keys", "list(string) >= 0"},
                          {"sparse_types", kFeatureTypes},
                          {"Tdense", kFeatureTypes},
                          {"dense_shapes", "list(shape) >= 0"}},
                .traits = {.cannot_differentiate = true, .cost = 1000},
                .shape = parse_single_example_shape,
                .no_gradient = "read text and messages"});
  registry.kernel<ParseSingleExample>("ParseSingleExample", DeviceKind::kCpu);
}

}  // namespace millrace
