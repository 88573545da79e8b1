// Random numbers, and elements left out at random.

#include "millrace/data/dataset_op.h"
#include "millrace/data/random_numbers.h"
#include "millrace/data/seeds.h"
#include "millrace/data/state.h"

namespace millrace::data {
namespace {

// Random numbers without end; others each time where `rerandomize`.
class RandomDataset final : public Dataset {
 public:
  RandomDataset(ElementSpec spec, Seeds seeds, bool rerandomize)
      : Dataset("Random", std::move(spec)), seeds_(seeds), rerandomize_(rerandomize) {}
  int64_t size() const override { return kInfinite; }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  template <bool kMayChange>
  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node()));
    MR_TRY_ASSIGN(const Seeds seeds, seeds_input(ctx, 0));
    bool rerandomize = false;
    if constexpr (kMayChange) {
      MR_TRY_ASSIGN(rerandomize, ctx.node().attr<bool>("rerandomize_each_iteration"));
    }
    return make_ref<RandomDataset>(std::move(spec), seeds, rerandomize);
  }

  const Seeds seeds_;
  const bool rerandomize_;
};

class RandomIterator final : public IteratorOf<RandomDataset> {
 public:
  RandomIterator(const RandomDataset& dataset, const Iteration& iteration, int64_t epoch)
      : IteratorOf(dataset, iteration),
        numbers_(dataset.seeds_.seed, dataset.seeds_.seed2, epoch) {}

 protected:
  Status fields(StateFields& state) override { return numbers_.fields(state); }
  Status produce(Element& out, bool& end) override {
    end = false;
    out = {Tensor::scalar(static_cast<int64_t>(numbers_.next() >> 32))};
    return ok_status();
  }

 private:
  RandomNumbers numbers_;
};

Result<std::unique_ptr<Iterator>> RandomDataset::iterate(const Iteration& iteration) const {
  Stage* stage = iteration.stages->find(*this);
  const int64_t epoch = rerandomize_ && stage != nullptr ? stage->next_epoch() : 0;
  return std::make_unique<RandomIterator>(*this, iteration, epoch);
}

// Each element with the probability `rate`.
class SamplingDataset final : public Dataset {
 public:
  SamplingDataset(Ref<Dataset> input, float rate, Seeds seeds)
      : Dataset("Sampling", input->spec(), {input}, true), rate_(rate), seeds_(seeds) {}
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
    MR_TRY_ASSIGN(const float rate, ctx.scalar_input<float>(1));
    MR_TRY_ASSIGN(const Seeds seeds, seeds_input(ctx, 2));
    return make_ref<SamplingDataset>(std::move(input), rate, seeds);
  }

  const float rate_;
  const Seeds seeds_;
};

class SamplingIterator final : public IteratorOverInput<SamplingDataset> {
 public:
  SamplingIterator(const SamplingDataset& dataset, const Iteration& iteration,
                   std::unique_ptr<Iterator> input)
      : IteratorOverInput(dataset, iteration, std::move(input)),
        numbers_(dataset.seeds_.seed, dataset.seeds_.seed2, 0) {}

 protected:
  Status own_fields(StateFields& state) override { return numbers_.fields(state); }
  Status produce(Element& out, bool& end) override {
    for (;;) {
      if (environment().stopped()) return environment().status();
      MR_TRY(input().next(out, end));
      if (end || static_cast<double>(numbers_.next() >> 11) * 0x1p-53 < dataset().rate_) {
        return ok_status();
      }
    }
  }

 private:
  RandomNumbers numbers_;
};

Result<std::unique_ptr<Iterator>> SamplingDataset::iterate(const Iteration& iteration) const {
  return iterate_over_input<SamplingIterator>(*this, iteration);
}

}  // namespace

void register_random(Registry& registry) {
  OpSpec numbers = {.name = "RandomDataset",
                    .doc = "A dataset of random numbers below 2^32, without end.",
                    .inputs = {{"seed", "int64"}, {"seed2", "int64", "Both zero: drawn."}},
                    .traits = {.stateful = true}};
  for (const char* name : {"RandomDataset", "ExperimentalRandomDataset"}) {
    numbers.name = std::string_view(name);
    add_dataset_op(registry, numbers, dataset_kernel<RandomDataset::make<false>>);
  }
  numbers.name = "RandomDatasetV2";
  numbers.inputs.push_back({"seed_generator", "resource", "Not used."});
  numbers.attrs = {{"rerandomize_each_iteration", "bool = false",
                    "Other numbers each time that the dataset is repeated."}};
  add_dataset_op(registry, numbers, dataset_kernel<RandomDataset::make<true>>);
  add_dataset_op(registry,
                 {.name = "SamplingDataset",
                  .doc = "Each element of a dataset with the probability `rate`.",
                  .inputs = {{"input_dataset", "variant"},
                             {"rate", "float"},
                             {"seed", "int64"},
                             {"seed2", "int64"}}},
                 dataset_kernel<SamplingDataset::make>);
}

}  // namespace millrace::data
