// Batches of serialized Examples, parsed.

#include <map>

#include "millrace/data/dataset_op.h"
#include "millrace/io/example_parser.h"
#include "millrace/tensor/tensor_variant.h"

namespace millrace::data {
namespace {

class ParseExamplesDataset final : public Dataset {
 public:
  // `places`: which component each feature of the parser is.
  ParseExamplesDataset(ElementSpec spec, Ref<Dataset> input, std::unique_ptr<ExampleParser> parser,
                       Element defaults, std::vector<size_t> places)
      : Dataset("ParseExample", std::move(spec), {std::move(input)}, true),
        parser_(std::move(parser)),
        defaults_(std::move(defaults)),
        places_(std::move(places)) {}
  int64_t size() const override { return inputs()[0]->size(); }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  static Result<Ref<Dataset>> make(KernelContext& ctx);

  const std::unique_ptr<ExampleParser> parser_;
  const Element defaults_;
  const std::vector<size_t> places_;
};

// The features that the attributes name, sparse ones first.
Result<std::vector<FeatureSpec>> features_of(const KernelNode& node) {
  MR_TRY_ASSIGN(const auto sparse_keys, node.attr<std::vector<std::string>>("sparse_keys"));
  MR_TRY_ASSIGN(const auto sparse_types, node.attr<std::vector<DType>>("sparse_types"));
  MR_TRY_ASSIGN(const auto dense_keys, node.attr<std::vector<std::string>>("dense_keys"));
  MR_TRY_ASSIGN(const auto dense_types, node.attr<std::vector<DType>>("Tdense"));
  MR_TRY_ASSIGN(const auto shapes, node.attr<std::vector<PartialShape>>("dense_shapes"));
  if (sparse_keys.size() != sparse_types.size()) {
    return invalid_argument("expected a type for each of ", sparse_keys.size(),
                            " sparse_keys, got ", sparse_types.size());
  }
  if (dense_keys.size() != dense_types.size() || dense_keys.size() != shapes.size()) {
    return invalid_argument("expected a type and a shape for each of ", dense_keys.size(),
                            " dense_keys, got ", dense_types.size(), " and ", shapes.size());
  }
  if (node.attrs.find("ragged_keys") != nullptr) {
    MR_TRY_ASSIGN(const auto ragged, node.attr<std::vector<std::string>>("ragged_keys"));
    if (!ragged.empty()) {
      return unimplemented("ragged features of datasets are not supported, got '", ragged[0], "'");
    }
  }
  std::vector<FeatureSpec> specs;
  for (size_t i = 0; i < sparse_keys.size(); ++i) {
    specs.push_back(
        {.key = sparse_keys[i], .dtype = sparse_types[i], .form = FeatureSpec::Form::kSparse});
  }
  for (size_t i = 0; i < dense_keys.size(); ++i) {
    MR_TRY_ASSIGN(FeatureSpec spec, FeatureSpec::dense(dense_types[i], shapes[i]));
    spec.key = dense_keys[i];
    specs.push_back(std::move(spec));
  }
  return specs;
}

Result<Ref<Dataset>> ParseExamplesDataset::make(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
  MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node()));
  MR_TRY_ASSIGN(std::vector<FeatureSpec> features, features_of(ctx.node()));
  // Components stand in the order of keys.
  std::map<std::string, size_t> order;
  for (const FeatureSpec& feature : features) order.emplace(feature.key, 0);
  if (order.size() != features.size() || order.size() != spec.types.size()) {
    return invalid_argument("expected a component for each of ", features.size(),
                            " features with different keys, got ", spec.types.size());
  }
  size_t next = 0;
  for (auto& [key, place] : order) place = next++;
  std::vector<size_t> places;
  size_t num_sparse = 0;
  for (const FeatureSpec& feature : features) {
    places.push_back(order[feature.key]);
    num_sparse += feature.form == FeatureSpec::Form::kSparse ? 1 : 0;
  }
  Element defaults(num_sparse);
  MR_TRY_ASSIGN(const Element dense, kept_inputs(ctx, 2, ctx.num_inputs() - 2));
  defaults.insert(defaults.end(), dense.begin(), dense.end());
  MR_TRY_ASSIGN(std::unique_ptr<ExampleParser> parser,
                ExampleParser::make(std::move(features), {}));
  return Ref<Dataset>(make_ref<ParseExamplesDataset>(std::move(spec), std::move(input),
                                                     std::move(parser), std::move(defaults),
                                                     std::move(places)));
}

class ParseExamplesIterator final : public IteratorOverInput<ParseExamplesDataset> {
 public:
  using IteratorOverInput::IteratorOverInput;

 protected:
  Status produce(Element& out, bool& end) override {
    MR_TRY(input().next(batch_, end));
    if (end) return ok_status();
    if (batch_.size() != 1 || batch_[0].dtype() != DType::kString || batch_[0].rank() != 1) {
      return invalid_argument("Expected input to be a vector of strings");
    }
    MR_TRY_ASSIGN(std::vector<ParsedFeature> parsed,
                  dataset().parser_->parse({.serialized = batch_[0].data<std::string>(),
                                            .defaults = dataset().defaults_}));
    out.resize(parsed.size());
    for (size_t i = 0; i < parsed.size(); ++i) {
      ParsedFeature& feature = parsed[i];
      Tensor& to = out[dataset().places_[i]];
      if (dataset().parser_->specs()[i].form != FeatureSpec::Form::kSparse) {
        to = std::move(feature.values);
        continue;
      }
      to = sparse_in_variants(std::move(feature.indices), std::move(feature.values),
                              std::move(feature.shape));
    }
    return ok_status();
  }

 private:
  Element batch_;
};

Result<std::unique_ptr<Iterator>> ParseExamplesDataset::iterate(const Iteration& iteration) const {
  return iterate_over_input<ParseExamplesIterator>(*this, iteration);
}

}  // namespace

void register_parse_examples(Registry& registry) {
  constexpr const char* kTypes = "list(type) >= 0 in {float,int64,string}";
  OpSpec spec = {.name = "ExperimentalParseExampleDataset",
                 .doc = "The features of batches of serialized Examples, in the order of keys.",
                 .inputs = {{"input_dataset", "variant"},
                            {"num_parallel_calls", "int64", "Not used: one after the other."},
                            {"dense_defaults", "list(Tdense)"}},
                 .attrs = {{"sparse_keys", "list(string) >= 0"},
                           {"dense_keys", "list(string) >= 0"},
                           {"sparse_types", kTypes},
                           {"Tdense", kTypes},
                           {"dense_shapes", "list(shape) >= 0"}}};
  const OpSpec base = spec;
  spec.attrs.push_back({"sloppy", "bool = false"});
  add_dataset_op(registry, spec, dataset_kernel<ParseExamplesDataset::make>);
  for (const char* name : {"ParseExampleDataset", "ParseExampleDatasetV2"}) {
    spec = base;
    spec.name = std::string_view(name);
    if (std::string_view(name).ends_with("V2")) {
      spec.attrs.push_back({"deterministic", "string = 'default'"});
    } else {
      spec.attrs.push_back({"sloppy", "bool = false"});
    }
    spec.attrs.push_back({"ragged_keys", "list(string) >= 0 = []"});
    spec.attrs.push_back({"ragged_value_types", "list(type) >= 0 = [] in {float,int64,string}"});
    spec.attrs.push_back({"ragged_split_types", "list(type) >= 0 = [] in {int32,int64}"});
    add_dataset_op(registry, spec, dataset_kernel<ParseExamplesDataset::make>);
  }
}

}  // namespace millrace::data
