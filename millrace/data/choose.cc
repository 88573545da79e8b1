// Elements of several datasets, in an order that another dataset says.

#include <algorithm>
#include <span>

#include "millrace/data/dataset_op.h"
#include "millrace/data/state.h"

namespace millrace::data {
namespace {

// The next element of the dataset whose number the selector, the first input, gives.
class DirectedInterleaveDataset final : public Dataset {
 public:
  DirectedInterleaveDataset(ElementSpec spec, std::vector<Ref<Dataset>> inputs, bool stop_on_empty)
      : Dataset("DirectedInterleave", std::move(spec), std::move(inputs), true),
        stop_on_empty_(stop_on_empty) {}
  // Without end where the selector is and a dataset that nothing but itself can stop.
  int64_t size() const override {
    if (inputs()[0]->size() != kInfinite) return kUnknownSize;
    const auto endless = [](const Ref<Dataset>& data) { return data->size() == kInfinite; };
    const auto data = std::span(inputs()).subspan(1);
    const bool goes_on =
        stop_on_empty_ ? std::ranges::all_of(data, endless) : std::ranges::any_of(data, endless);
    return goes_on ? kInfinite : kUnknownSize;
  }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  template <bool kMayStop>
  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    bool stop_on_empty = false;
    if constexpr (kMayStop) {
      MR_TRY_ASSIGN(stop_on_empty, ctx.node().attr<bool>("stop_on_empty_dataset"));
    }
    MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node()));
    MR_TRY_ASSIGN(std::vector<Ref<Dataset>> inputs, dataset_inputs(ctx));
    return make_ref<DirectedInterleaveDataset>(std::move(spec), std::move(inputs), stop_on_empty);
  }

  const bool stop_on_empty_;
};

class DirectedInterleaveIterator final : public IteratorOf<DirectedInterleaveDataset> {
 public:
  DirectedInterleaveIterator(const DirectedInterleaveDataset& dataset, const Iteration& iteration,
                             std::vector<std::unique_ptr<Iterator>> inputs)
      : IteratorOf(dataset, iteration),
        inputs_(std::move(inputs)),
        ended_(inputs_.size(), false),
        open_(inputs_.size() - 1) {}

 protected:
  Status fields(StateFields& state) override {
    open_ = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      bool ended = ended_[i];
      MR_TRY(state.flag(ended));
      ended_[i] = ended;
      open_ += i > 0 && !ended ? 1 : 0;
    }
    for (const auto& input : inputs_) MR_TRY(state.iterator(*input));
    return ok_status();
  }
  Status produce(Element& out, bool& end) override {
    for (;;) {
      if (environment().stopped()) return environment().status();
      end = ended_[0] || open_ == 0;
      if (end) return ok_status();
      MR_TRY(inputs_[0]->next(choice_, end));
      if (end) {
        ended_[0] = true;
        return ok_status();
      }
      if (choice_.size() != 1 || choice_[0].dtype() != DType::kInt64 ||
          choice_[0].num_elements() != 1) {
        return invalid_argument("the selector must give one int64");
      }
      const int64_t which = choice_[0].item<int64_t>();
      if (which < 0 || which >= static_cast<int64_t>(inputs_.size()) - 1) {
        return invalid_argument("Selector index out of range: ", which, " >= ", inputs_.size() - 1);
      }
      const auto i = static_cast<size_t>(which) + 1;
      if (ended_[i]) continue;
      MR_TRY(inputs_[i]->next(out, end));
      if (!end) return ok_status();
      ended_[i] = true;
      --open_;
      if (dataset().stop_on_empty_) {
        ended_[0] = true;
        return ok_status();
      }
    }
  }

 private:
  const std::vector<std::unique_ptr<Iterator>> inputs_;
  std::vector<bool> ended_;  // by input, the selector first
  size_t open_;              // data inputs that have not ended
  Element choice_;
};

Result<std::unique_ptr<Iterator>> DirectedInterleaveDataset::iterate(
    const Iteration& iteration) const {
  MR_TRY_ASSIGN(auto inputs, iterate_inputs(*this, iteration));
  return std::make_unique<DirectedInterleaveIterator>(*this, iteration, std::move(inputs));
}

}  // namespace

void register_choose(Registry& registry) {
  const SpecList<OpSpec::Arg> directed = {{"selector_input_dataset", "variant"},
                                          {"data_input_datasets", "N*variant"}};
  add_dataset_op(
      registry,
      {.name = "DirectedInterleaveDataset",
       .doc = "Elements of several datasets, in the order that a dataset of numbers says.",
       .inputs = directed,
       .attrs = {{"N", "int >= 1"}, {"stop_on_empty_dataset", "bool = false"}}},
      dataset_kernel<DirectedInterleaveDataset::make<true>>);
  add_dataset_op(
      registry,
      {.name = "ExperimentalDirectedInterleaveDataset",
       .doc = "Elements of several datasets, in the order that a dataset of numbers says.",
       .inputs = directed,
       .attrs = {{"N", "int >= 1"}}},
      dataset_kernel<DirectedInterleaveDataset::make<false>>);
}

}  // namespace millrace::data
