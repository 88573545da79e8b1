// Ops around datasets that change no element: options, sizes, and handles that newer graphs pass.

#include <atomic>

#include "millrace/data/dataset_op.h"
#include "millrace/data/handles.h"
#include "millrace/graph/shape_context.h"

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

Status cardinality(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Ref<Dataset> dataset, dataset_input(ctx, 0));
  ctx.set_output(0, Tensor::scalar(dataset->size()));
  return ok_status();
}

// A handle of nothing: seeds and caches belong to datasets here.
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
  add_same("OptionsDataset", {}, {{"serialized_options", "string"}});
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
  add_same("AssertCardinalityDataset", {{"cardinality", "int64"}}, {});
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
  for (const char* name : {"DummySeedGenerator", "DummyMemoryCache", "DummyIterationCounter"}) {
    registry.add({.name = std::string_view(name),
                  .doc = "A handle of nothing.",
                  .outputs = {{"handle", "resource"}},
                  .traits = stateful,
                  .shape = shape_rules::scalar});
    registry.kernel(std::string_view(name), DeviceKind::kCpu, dummy_handle);
  }
  const auto add_anonymous = [&](const char* name, SpecList<OpSpec::Arg> inputs) {
    registry.add({.name = std::string_view(name),
                  .doc = "A handle of nothing, and what would delete it.",
                  .inputs = inputs,
                  .outputs = {{"handle", "resource"}, {"deleter", "variant"}},
                  .traits = stateful,
                  .shape = shape_rules::scalar});
    registry.kernel(std::string_view(name), DeviceKind::kCpu, dummy_handle);
  };
  add_anonymous("AnonymousSeedGenerator",
                {{"seed", "int64"}, {"seed2", "int64"}, {"reshuffle", "bool"}});
  add_anonymous("AnonymousRandomSeedGenerator", {{"seed", "int64"}, {"seed2", "int64"}});
  add_anonymous("AnonymousMemoryCache", {});
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
