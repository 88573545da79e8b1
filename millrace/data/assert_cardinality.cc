// A dataset that is said to have so many elements.

#include "millrace/data/dataset_op.h"
#include "millrace/data/state.h"

namespace millrace::data {
namespace {

class AssertCardinalityDataset final : public Dataset {
 public:
  AssertCardinalityDataset(Ref<Dataset> input, int64_t count)
      : Dataset("AssertCardinality", input->spec(), {input}), count_(count) {}
  int64_t size() const override { return count_; }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
    MR_TRY_ASSIGN(const int64_t count, count_input(ctx, 1, "cardinality", kUnknownSize));
    return make_ref<AssertCardinalityDataset>(std::move(input), count);
  }

  const int64_t count_;
};

std::string elements(int64_t count) {
  if (count == Dataset::kInfinite) return "an infinite number of elements";
  if (count == Dataset::kUnknownSize) return "an unknown number of elements";
  return str_cat(count, count == 1 ? " element" : " elements");
}

class AssertCardinalityIterator final : public IteratorOverInput<AssertCardinalityDataset> {
 public:
  using IteratorOverInput::IteratorOverInput;

 protected:
  Status own_fields(StateFields& state) override {
    return state.number(seen_, 0, StateFields::kMostCounted);
  }
  Status produce(Element& out, bool& end) override {
    const int64_t count = dataset().count_;
    MR_TRY(input().next(out, end));
    if (!end) ++seen_;
    if (end && count != Dataset::kUnknownSize && seen_ != count) {
      return failed_precondition("Input dataset was expected to contain ", elements(count),
                                 " but contained only ", elements(seen_), ".");
    }
    if (!end && count >= 0 && seen_ > count) {
      return failed_precondition("Input dataset was expected to contain ", elements(count),
                                 " but contained at least ", elements(seen_), ".");
    }
    return ok_status();
  }

 private:
  int64_t seen_ = 0;
};

Result<std::unique_ptr<Iterator>> AssertCardinalityDataset::iterate(
    const Iteration& iteration) const {
  return iterate_over_input<AssertCardinalityIterator>(*this, iteration);
}

}  // namespace

void register_assert_cardinality(Registry& registry) {
  add_dataset_op(registry,
                 {.name = "AssertCardinalityDataset",
                  .doc = "The dataset, and an error where it has not so many elements.",
                  .inputs = {{"input_dataset", "variant"},
                             {"cardinality", "int64", "-1: without end; -2: not known."}}},
                 dataset_kernel<AssertCardinalityDataset::make>);
}

}  // namespace millrace::data
