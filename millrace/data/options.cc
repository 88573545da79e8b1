// Ops around datasets that change no element: options, sizes, and handles that newer graphs pass.

#include <atomic>
#include <optional>

#include "millrace/data/dataset_op.h"
#include "millrace/data/handles.h"
#include "millrace/data/seeds.h"
#include "millrace/graph/shape_context.h"
#include "millrace/io/wire.h"

namespace millrace::data {
namespace {

// A dataset as it is. What the options ask for is done where it is possible without them.
Result<Ref<Dataset>> same(KernelContext& ctx) { return dataset_input(ctx, 0); }

// A dataset that is iterated with a limit on what its stages keep.
class BudgetDataset final : public Dataset {
 public:
  BudgetDataset(Ref<Dataset> input, int64_t bytes)
      : Dataset("Model", input->spec(), {input}), bytes_(bytes) {}
  int64_t size() const override { return inputs()[0]->size(); }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override {
    Ref<Environment> own = Environment::make_child(*iteration.environment);
    own->memory_budget = bytes_;
    return inputs()[0]->iterate(iteration.within(std::move(own)));
  }

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
    MR_TRY_ASSIGN(const int64_t bytes, ctx.node().attr<int64_t>("ram_budget"));
    if (bytes <= 0) return input;
    return Ref<Dataset>(make_ref<BudgetDataset>(std::move(input), bytes));
  }

 private:
  const int64_t bytes_;
};

// What the options, a message of TensorFlow's, say of `deterministic`; of others nothing is read.
Result<std::optional<bool>> read_deterministic(std::string_view options) {
  constexpr uint32_t kDeterministic = wire_tag(1, WireType::kVarint);
  std::optional<bool> deterministic;
  for (WireReader reader(options); !reader.done();) {
    uint32_t tag;
    uint64_t value;
    if (!reader.tag(tag) || !(tag == kDeterministic ? reader.varint(value) : reader.skip(tag))) {
      return invalid_argument("serialized_options is no message of options");
    }
    if (tag == kDeterministic) deterministic = value != 0;
  }
  return deterministic;
}

Status options_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const std::string options, c.attr<std::string>("serialized_options"));
  MR_TRY(read_deterministic(options).status());
  return dataset_shape(c);
}

// A dataset whose parallel stages may give elements in any order, or may not, where they do not say
// themselves.
class OrderDataset final : public Dataset {
 public:
  OrderDataset(Ref<Dataset> input, bool any_order)
      : Dataset("Options", input->spec(), {input}), any_order_(any_order) {}
  int64_t size() const override { return inputs()[0]->size(); }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override {
    Ref<Environment> own = Environment::make_child(*iteration.environment);
    own->any_order = any_order_;
    return inputs()[0]->iterate(iteration.within(std::move(own)));
  }

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
    MR_TRY_ASSIGN(const std::string options, ctx.node().attr<std::string>("serialized_options"));
    MR_TRY_ASSIGN(const std::optional<bool> deterministic, read_deterministic(options));
    if (!deterministic.has_value()) return input;
    return Ref<Dataset>(make_ref<OrderDataset>(std::move(input), !*deterministic));
  }

 private:
  const bool any_order_;
};

Status cardinality(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Ref<Dataset> dataset, dataset_input(ctx, 0));
  ctx.set_output(0, Tensor::scalar(dataset->size()));
  return ok_status();
}

template <bool kGiven>
Status seed_generator(KernelContext& ctx) {
  MR_TRY(check_call(ctx));
  Seeds seeds;
  if constexpr (kGiven) {
    MR_TRY_ASSIGN(seeds, seeds_input(ctx, 0));
  }
  ctx.set_output(0, make_seed_generator(ctx, seeds));
  if (ctx.num_outputs() > 1) ctx.set_output(1, Tensor::scalar(Variant{}));
  return ok_status();
}

// The first of several that have the same elements.
Result<Ref<Dataset>> first_of(KernelContext& ctx) { return dataset_input(ctx, 0); }

Status hand_on(KernelContext& ctx) {
  MR_TRY(dataset_input(ctx, 0).status());
  ctx.set_output(0, ctx.input(0));
  return ok_status();
}

// A handle of nothing: caches belong to datasets here.
Status dummy_handle(KernelContext& ctx) {
  ctx.set_output(0, make_handle(ctx, "", ctx.node().name, "Dummy"));
  if (ctx.num_outputs() > 1) ctx.set_output(1, Tensor::scalar(Variant{}));
  return ok_status();
}

Status do_nothing(KernelContext&) { return ok_status(); }

}  // namespace

void register_options(Registry& registry) {
  const OpSpec::Arg input = {"input_dataset", "variant"};
  const auto add_same = [&](const char* name, std::vector<OpSpec::Arg> inputs,
                            std::vector<OpSpec::Attr> attrs) {
    inputs.insert(inputs.begin(), input);
    add_dataset_op(registry,
                   {.name = std::string_view(name),
                    .doc = "The dataset as it is.",
                    .inputs = inputs,
                    .attrs = attrs},
                   dataset_kernel<same>);
  };
  const OpSpec::Attr configs = {"optimization_configs", "list(string) = []"};
  add_same("OptimizeDataset", {{"optimizations", "string"}}, {configs});
  add_same("OptimizeDatasetV2",
           {{"optimizations_enabled", "string"},
            {"optimizations_disabled", "string"},
            {"optimizations_default", "string"}},
           {configs});
  add_same("FinalizeDataset", {}, {{"has_captured_ref", "bool = false"}});
  add_same("MaxIntraOpParallelismDataset", {{"max_intra_op_parallelism", "int64"}}, {});
  add_same("PrivateThreadPoolDataset", {{"num_threads", "int64"}}, {});
  add_same("ExperimentalPrivateThreadPoolDataset", {{"num_threads", "int64"}}, {});
  add_same("AssertNextDataset", {{"transformations", "string"}}, {});
  add_same("NonSerializableDataset", {}, {});
  for (const char* name : {"LatencyStatsDataset", "ExperimentalLatencyStatsDataset",
                           "BytesProducedStatsDataset", "ExperimentalBytesProducedStatsDataset"}) {
    add_same(name, {{"tag", "string"}}, {});
  }
  add_same("RewriteDataset", {{"rewrite_name", "string"}}, {});
  add_same("ThreadPoolDataset", {{"thread_pool", "resource"}}, {});
  add_same("ExperimentalThreadPoolDataset", {{"thread_pool", "resource"}}, {});
  add_same("ExperimentalNonSerializableDataset", {}, {});
  add_same("ExperimentalAssertNextDataset", {{"transformations", "string"}}, {});
  add_same("ExperimentalMaxIntraOpParallelismDataset", {{"max_intra_op_parallelism", "int64"}}, {});
  for (const char* name : {"ChooseFastestDataset", "ExperimentalChooseFastestDataset"}) {
    add_dataset_op(registry,
                   {.name = std::string_view(name),
                    .doc = "One of several datasets that have the same elements: the first.",
                    .inputs = {{"input_datasets", "N*variant"}},
                    .attrs = {{"N", "int >= 2"}, {"num_experiments", "int"}}},
                   dataset_kernel<first_of>);
  }
  add_dataset_op(registry,
                 {.name = "OptionsDataset",
                  .doc = "The dataset, with options for its stages.",
                  .inputs = {input},
                  .attrs = {{"serialized_options", "string",
                             "A message tensorflow.data.Options, of which `deterministic` is "
                             "read: whether elements come in order."}},
                  .shape = options_shape},
                 dataset_kernel<OrderDataset::make>);
  add_dataset_op(registry,
                 {.name = "ModelDataset",
                  .doc = "The dataset, with a limit on the bytes that its stages keep.",
                  .inputs = {input},
                  .attrs = {{"algorithm", "int = 0"},
                            {"cpu_budget", "int = 0"},
                            {"ram_budget", "int = 0", "Bytes; 0: no limit."}}},
                 dataset_kernel<BudgetDataset::make>);
  const OpTraits plain = {.cannot_differentiate = true};
  for (const char* name : {"DatasetCardinality", "ExperimentalDatasetCardinality"}) {
    SpecList<OpSpec::Attr> attrs;
    if (name[0] == 'D') attrs.push_back({"cardinality_options", "string = ''"});
    registry.add({.name = std::string_view(name),
                  .doc = "The number of elements, -1 for a dataset without end, -2 when not known.",
                  .inputs = {input},
                  .outputs = {{"cardinality", "int64"}},
                  .attrs = attrs,
                  .traits = plain,
                  .shape = shape_rules::scalar});
    registry.kernel(std::string_view(name), DeviceKind::kCpu, cardinality);
  }
  const OpTraits stateful = {.stateful = true, .cannot_differentiate = true};
  for (const char* name : {"WrapDatasetVariant", "UnwrapDatasetVariant"}) {
    registry.add({.name = std::string_view(name),
                  .doc = "The dataset as it is.",
                  .inputs = {{"input_handle", "variant"}},
                  .outputs = {{"output_handle", "variant"}},
                  .traits = plain,
                  .shape = shape_rules::scalar,
                  .no_gradient = "hands on a dataset"});
    registry.kernel(std::string_view(name), DeviceKind::kCpu, hand_on);
  }
  for (const char* name : {"ThreadPoolHandle", "ExperimentalThreadPoolHandle"}) {
    registry.add({.name = std::string_view(name),
                  .doc = "A handle of nothing: there is one pool of threads.",
                  .outputs = {{"handle", "resource"}},
                  .attrs = {{"num_threads", "int"},
                            {"max_intra_op_parallelism", "int = 1"},
                            {"display_name", "string"},
                            {"container", "string = ''"},
                            {"shared_name", "string = ''"}},
                  .traits = stateful,
                  .shape = shape_rules::scalar});
    registry.kernel(std::string_view(name), DeviceKind::kCpu, dummy_handle);
  }
  registry.add({.name = "DummySeedGenerator",
                .doc = "A generator of seeds that are drawn.",
                .outputs = {{"handle", "resource"}},
                .traits = stateful,
                .shape = shape_rules::scalar});
  registry.kernel("DummySeedGenerator", DeviceKind::kCpu, seed_generator<false>);
  for (const char* name : {"DummyMemoryCache", "DummyIterationCounter"}) {
    registry.add({.name = std::string_view(name),
                  .doc = "A handle of nothing.",
                  .outputs = {{"handle", "resource"}},
                  .traits = stateful,
                  .shape = shape_rules::scalar});
    registry.kernel(std::string_view(name), DeviceKind::kCpu, dummy_handle);
  }
  const auto add_anonymous = [&](const char* name, SpecList<OpSpec::Arg> inputs,
                                 KernelFunction kernel) {
    registry.add({.name = std::string_view(name),
                  .doc = "A handle with nothing behind it, and what would delete that.",
                  .inputs = inputs,
                  .outputs = {{"handle", "resource"}, {"deleter", "variant"}},
                  .traits = stateful,
                  .shape = dataset_shape});
    registry.kernel(std::string_view(name), DeviceKind::kCpu, kernel);
  };
  add_anonymous("AnonymousSeedGenerator",
                {{"seed", "host(int64)"}, {"seed2", "host(int64)"}, {"reshuffle", "bool"}},
                seed_generator<true>);
  add_anonymous("AnonymousRandomSeedGenerator", {{"seed", "host(int64)"}, {"seed2", "host(int64)"}},
                seed_generator<true>);
  add_anonymous("AnonymousMemoryCache", {}, dummy_handle);
  for (const char* name :
       {"DeleteSeedGenerator", "DeleteRandomSeedGenerator", "DeleteMemoryCache"}) {
    registry.add({.name = std::string_view(name),
                  .doc = "Deletes nothing.",
                  .inputs = {{"handle", "resource"}, {"deleter", "variant"}},
                  .traits = stateful,
                  .shape = shape_rules::no_outputs});
    registry.kernel(std::string_view(name), DeviceKind::kCpu, do_nothing);
  }
}

}  // namespace millrace::data
