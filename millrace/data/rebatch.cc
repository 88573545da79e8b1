// Batches cut and joined to batches of other sizes.

#include <algorithm>

#include "millrace/data/batch_rows.h"
#include "millrace/data/dataset_op.h"
#include "millrace/data/state.h"

namespace millrace::data {
namespace {

// Rows of the input's batches in batches of `sizes`, one after the other and again.
class RebatchDataset final : public Dataset {
 public:
  RebatchDataset(ElementSpec spec, Ref<Dataset> input, std::vector<int64_t> sizes,
                 bool drop_remainder)
      : Dataset("Rebatch", std::move(spec), {std::move(input)}, true),
        sizes_(std::move(sizes)),
        drop_remainder_(drop_remainder) {}
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
    MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node()));
    if (ctx.input(1).rank() > 1) {
      return invalid_argument("`batch_sizes` must be a scalar or a vector, got ",
                              ctx.input(1).shape());
    }
    const auto data = ctx.input(1).data<int64_t>();
    std::vector<int64_t> sizes(data.begin(), data.end());
    if (sizes.empty() || *std::min_element(sizes.begin(), sizes.end()) < 1) {
      return invalid_argument("`batch_sizes` must be positive, got [", str_join(sizes, ","), "]");
    }
    MR_TRY_ASSIGN(const bool drop, ctx.scalar_input<bool>(2));
    return make_ref<RebatchDataset>(std::move(spec), std::move(input), std::move(sizes), drop);
  }

  const std::vector<int64_t> sizes_;
  const bool drop_remainder_;
};

class RebatchIterator final : public IteratorOverInput<RebatchDataset> {
 public:
  using IteratorOverInput::IteratorOverInput;

 protected:
  Status own_fields(StateFields& state) override {
    MR_TRY(state.flag(ended_));
    MR_TRY(state.number(turn_, 0, static_cast<int64_t>(dataset().sizes_.size()) - 1));
    int64_t at = at_;
    MR_TRY(state.element(batch_));
    MR_TRY(state.number(at));
    if (!state.reading()) return ok_status();
    MR_TRY(open());
    if (at > rows_) return data_loss("the state is at row ", at, " of a batch of ", rows_);
    at_ = at;
    return ok_status();
  }
  Status produce(Element& out, bool& end) override {
    const int64_t size = dataset().sizes_[static_cast<size_t>(turn_)];
    rows_of_batch_.begin(size);
    while (!ended_ && rows_of_batch_.rows() < size) {
      if (environment().stopped()) return environment().status();
      if (at_ < rows_) {
        row_.resize(batch_.size());
        for (size_t i = 0; i < batch_.size(); ++i) row_[i] = batch_[i].row(at_);
        ++at_;
        MR_TRY(rows_of_batch_.add(row_));
        continue;
      }
      MR_TRY(input().next(batch_, ended_));
      if (!ended_) MR_TRY(open());
    }
    const int64_t rows = rows_of_batch_.rows();
    end = rows == 0 || (dataset().drop_remainder_ && rows < size);
    if (end) return ok_status();
    turn_ = turn_ + 1 == static_cast<int64_t>(dataset().sizes_.size()) ? 0 : turn_ + 1;
    rows_of_batch_.finish(out);
    return ok_status();
  }

 private:
  // Begins with the batch that came.
  Status open() {
    at_ = rows_ = 0;
    if (batch_.empty()) return ok_status();
    for (size_t i = 0; i < batch_.size(); ++i) {
      if (batch_[i].rank() < 1 || batch_[i].dim(0) != batch_[0].dim(0)) {
        return invalid_argument(
            "Cannot rebatch dataset: all components must be batches of one size, component ", i,
            " is ", batch_[i].shape(), ", component 0 ", batch_[0].shape());
      }
    }
    rows_ = batch_[0].dim(0);
    return ok_status();
  }
  Element batch_;
  int64_t at_ = 0, rows_ = 0;  // of the batch
  int64_t turn_ = 0;           // of the sizes
  BatchRows rows_of_batch_;
  Element row_;
  bool ended_ = false;
};

Result<std::unique_ptr<Iterator>> RebatchDataset::iterate(const Iteration& iteration) const {
  return iterate_over_input<RebatchIterator>(*this, iteration);
}

}  // namespace

void register_rebatch(Registry& registry) {
  add_dataset_op(registry,
                 {.name = "RebatchDatasetV2",
                  .doc = "The rows of batches in batches of other sizes.",
                  .inputs = {{"input_dataset", "variant"},
                             {"batch_sizes", "int64", "One after the other, and again."},
                             {"drop_remainder", "bool"}}},
                 dataset_kernel<RebatchDataset::make>);
}

}  // namespace millrace::data
