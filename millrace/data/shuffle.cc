// Elements in random order, out of a buffer.

#include <atomic>

#include "millrace/data/combine.h"
#include "millrace/data/dataset_op.h"
#include "millrace/data/random_numbers.h"
#include "millrace/data/seeds.h"
#include "millrace/data/state.h"

namespace millrace::data {
namespace {

class ShuffleDataset final : public Dataset {
 public:
  ShuffleDataset(Ref<Dataset> input, int64_t buffer_size, Seeds seeds, bool reshuffle)
      : Dataset("Shuffle", input->spec(), {input}, buffer_size > kLong),
        buffer_size_(buffer_size),
        seeds_(seeds),
        reshuffle_(reshuffle) {}
  int64_t size() const override { return inputs()[0]->size(); }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  const int64_t buffer_size_;
  const Seeds seeds_;
  const bool reshuffle_;

 private:
  // The number of an iteration that begins: the order follows from it. Goes on within a tree of
  // iterators, from where the last one over this dataset has come to.
  int64_t next_epoch(Stage& stage) const {
    int64_t epoch = stage.next_epoch();
    if (epoch == 0) {
      epoch = begun_.load(std::memory_order_relaxed);
      stage.set_next_epoch(epoch + 1);
    }
    begun_.store(epoch + 1, std::memory_order_relaxed);
    return epoch;
  }

  mutable std::atomic<int64_t> begun_{0};
};

class ShuffleIterator final : public IteratorOverInput<ShuffleDataset> {
 public:
  ShuffleIterator(const ShuffleDataset& dataset, const Iteration& iteration,
                  std::unique_ptr<Iterator> input, int64_t epoch)
      : IteratorOverInput(dataset, iteration, std::move(input)),
        epoch_(epoch),
        numbers_(dataset.seeds_.seed, dataset.seeds_.seed2, epoch) {}

 protected:
  Status own_fields(StateFields& state) override {
    MR_TRY(state.number(epoch_, 0, INT64_MAX - 1));
    if (state.reading() && stage() != nullptr) stage()->set_next_epoch(epoch_ + 1);
    MR_TRY(numbers_.fields(state));
    MR_TRY(state.flag(ended_));
    return state.elements(buffer_, dataset().buffer_size_);
  }
  Status produce(Element& out, bool& end) override {
    while (!ended_ && static_cast<int64_t>(buffer_.size()) < dataset().buffer_size_) {
      if (environment().stopped()) return environment().status();
      buffer_.emplace_back();
      Status status = input().next(buffer_.back(), ended_);
      if (ended_ || !status.ok()) buffer_.pop_back();
      MR_TRY(status);
    }
    end = buffer_.empty();
    if (end) return ok_status();
    const auto i = static_cast<size_t>(numbers_.below(static_cast<int64_t>(buffer_.size())));
    out.swap(buffer_[i]);
    buffer_[i].swap(buffer_.back());
    buffer_.pop_back();
    return ok_status();
  }

 private:
  int64_t epoch_;
  RandomNumbers numbers_;
  std::vector<Element> buffer_;
  bool ended_ = false;
};

Result<std::unique_ptr<Iterator>> ShuffleDataset::iterate(const Iteration& iteration) const {
  MR_TRY_ASSIGN(std::unique_ptr<Iterator> input, inputs()[0]->iterate(iteration));
  Stage* stage = iteration.stages->find(*this);
  const int64_t epoch = reshuffle_ && stage != nullptr ? next_epoch(*stage) : 0;
  return std::make_unique<ShuffleIterator>(*this, iteration, std::move(input), epoch);
}

// Seeds are drawn, where they are, when the dataset is made.
Result<Ref<Dataset>> make_shuffle(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
  MR_TRY_ASSIGN(const int64_t buffer_size, count_input(ctx, 1, "buffer_size", 1));
  MR_TRY_ASSIGN(const Seeds seeds, seeds_input(ctx, 2));
  MR_TRY_ASSIGN(const bool reshuffle, ctx.node().attr<bool>("reshuffle_each_iteration"));
  return Ref<Dataset>(make_ref<ShuffleDataset>(std::move(input), buffer_size, seeds, reshuffle));
}

// The order of ShuffleDatasetV2 changes with each iteration, as its generator goes on.
Result<Ref<Dataset>> make_shuffle_by_generator(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
  MR_TRY_ASSIGN(const int64_t buffer_size, count_input(ctx, 1, "buffer_size", 1));
  MR_TRY_ASSIGN(const Seeds seeds, seed_generator_input(ctx, 2));
  return Ref<Dataset>(make_ref<ShuffleDataset>(std::move(input), buffer_size, seeds, true));
}

Result<Ref<Dataset>> make_shuffle_and_repeat(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<Dataset> shuffled, make_shuffle(ctx));
  MR_TRY_ASSIGN(const int64_t count, ctx.int_scalar_input(4));
  return make_repeat_dataset(std::move(shuffled), count);
}

}  // namespace

void register_shuffle(Registry& registry) {
  const OpSpec::Arg generator = {"seed_generator", "resource", "Not used: seeds are given."};
  OpSpec spec = {.name = "ShuffleDataset",
                 .doc = "The elements of a dataset in random order, out of a buffer.",
                 .inputs = {{"input_dataset", "variant"},
                            {"buffer_size", "int64"},
                            {"seed", "int64"},
                            {"seed2", "int64", "Both seeds zero: drawn."}},
                 .attrs = {{"reshuffle_each_iteration", "bool = true",
                            "Another order each time that the dataset is repeated."}},
                 .traits = {.stateful = true}};
  add_dataset_op(registry, spec, dataset_kernel<make_shuffle>);
  OpSpec with_generator = spec;
  with_generator.name = "ShuffleDatasetV3";
  with_generator.inputs.push_back(generator);
  add_dataset_op(registry, with_generator, dataset_kernel<make_shuffle>);
  spec.name = "ShuffleAndRepeatDataset";
  spec.doc = "The elements of a dataset in random order, again and again.";
  spec.inputs.push_back({"count", "int64", "How often; negative: without end."});
  add_dataset_op(registry, spec, dataset_kernel<make_shuffle_and_repeat>);
  spec.name = "ShuffleAndRepeatDatasetV2";
  spec.inputs.push_back(generator);
  add_dataset_op(registry, spec, dataset_kernel<make_shuffle_and_repeat>);
  add_dataset_op(registry,
                 {.name = "ShuffleDatasetV2",
                  .doc = "The elements of a dataset in random order, out of a buffer.",
                  .inputs = {{"input_dataset", "variant"},
                             {"buffer_size", "int64"},
                             {"seed_generator", "resource", "Whose seeds are used."}},
                  .traits = {.stateful = true}},
                 dataset_kernel<make_shuffle_by_generator>);
}

}  // namespace millrace::data
