// Elements in random order, out of a buffer.

#include <random>

#include "millrace/data/dataset_op.h"
#include "millrace/data/random_numbers.h"
#include "millrace/data/state.h"

namespace millrace::data {
namespace {

class ShuffleDataset final : public Dataset {
 public:
  ShuffleDataset(Ref<Dataset> input, int64_t buffer_size, int64_t seed, int64_t seed2,
                 bool reshuffle)
      : Dataset("Shuffle", input->spec(), {input}, buffer_size > kLong),
        buffer_size_(buffer_size),
        seed_(seed),
        seed2_(seed2),
        reshuffle_(reshuffle) {}
  int64_t size() const override { return inputs()[0]->size(); }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  // Seeds of zero are drawn when the dataset is made.
  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
    MR_TRY_ASSIGN(const int64_t buffer_size, count_input(ctx, 1, "buffer_size", 1));
    MR_TRY_ASSIGN(int64_t seed, ctx.int_scalar_input(2));
    MR_TRY_ASSIGN(int64_t seed2, ctx.int_scalar_input(3));
    MR_TRY_ASSIGN(const bool reshuffle, ctx.node().attr<bool>("reshuffle_each_iteration"));
    if (seed == 0 && seed2 == 0) {
      std::random_device device;
      seed = device();
      seed2 = device();
    }
    return make_ref<ShuffleDataset>(std::move(input), buffer_size, seed, seed2, reshuffle);
  }

  const int64_t buffer_size_, seed_, seed2_;
  const bool reshuffle_;
};

class ShuffleIterator final : public IteratorOverInput<ShuffleDataset> {
 public:
  ShuffleIterator(const ShuffleDataset& dataset, const Iteration& iteration,
                  std::unique_ptr<Iterator> input, int64_t epoch)
      : IteratorOverInput(dataset, iteration, std::move(input)),
        epoch_(epoch),
        numbers_(dataset.seed_, dataset.seed2_, epoch) {}

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
  const int64_t epoch = reshuffle_ && stage != nullptr ? stage->next_epoch() : 0;
  return std::make_unique<ShuffleIterator>(*this, iteration, std::move(input), epoch);
}

}  // namespace

void register_shuffle(Registry& registry) {
  add_dataset_op(registry,
                 {.name = "ShuffleDataset",
                  .doc = "The elements of a dataset in random order, out of a buffer.",
                  .inputs = {{"input_dataset", "variant"},
                             {"buffer_size", "int64"},
                             {"seed", "int64"},
                             {"seed2", "int64", "Both seeds zero: drawn."}},
                  .attrs = {{"reshuffle_each_iteration", "bool = true",
                             "Another order each time that the dataset is repeated."}},
                  .traits = {.stateful = true}},
                 dataset_kernel<ShuffleDataset::make>);
  add_dataset_op(registry,
                 {.name = "ShuffleDatasetV3",
                  .doc = "As ShuffleDataset; the seeds are those given.",
                  .inputs = {{"input_dataset", "variant"},
                             {"buffer_size", "int64"},
                             {"seed", "int64"},
                             {"seed2", "int64"},
                             {"seed_generator", "resource", "Not used."}},
                  .attrs = {{"reshuffle_each_iteration", "bool = true"}},
                  .traits = {.stateful = true}},
                 dataset_kernel<ShuffleDataset::make>);
}

}  // namespace millrace::data
