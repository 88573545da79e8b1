// Elements joined to batches, and batches taken apart.

#include "millrace/data/batch.h"

#include <algorithm>

#include "millrace/data/batch_rows.h"
#include "millrace/data/dataset_op.h"
#include "millrace/data/state.h"

namespace millrace::data {
namespace {

class BatchDataset final : public Dataset {
 public:
  BatchDataset(ElementSpec spec, Ref<Dataset> input, int64_t size, bool drop_remainder)
      : Dataset("Batch", std::move(spec), {std::move(input)}, size > kLong),
        batch_size_(size),
        drop_remainder_(drop_remainder) {}
  int64_t size() const override {
    return batches_of(inputs()[0]->size(), batch_size_, drop_remainder_);
  }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  // The last input says whether to drop, where there is one.
  template <bool kMayDrop>
  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
    MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node()));
    MR_TRY_ASSIGN(const int64_t size, count_input(ctx, 1, "Batch size", 1));
    bool drop = false;
    if constexpr (kMayDrop) {
      MR_TRY_ASSIGN(drop, ctx.scalar_input<bool>(ctx.num_inputs() - 1));
    }
    return make_batch_dataset(std::move(spec), std::move(input), size, drop);
  }

  const int64_t batch_size_;
  const bool drop_remainder_;
};

class BatchIterator final : public IteratorOverInput<BatchDataset> {
 public:
  using IteratorOverInput::IteratorOverInput;

 protected:
  Status own_fields(StateFields& state) override { return state.flag(ended_); }
  Status produce(Element& out, bool& end) override {
    const int64_t size = dataset().batch_size_;
    rows_.begin(size);
    if (!ended_) {
      Status status = input().next_rows(size, rows_, ended_);
      if (!status.ok()) return leave(std::move(status));
    }
    const int64_t rows = rows_.rows();
    end = rows == 0 || (dataset().drop_remainder_ && rows < size);
    if (!end) rows_.finish(out);
    return ok_status();
  }

 private:
  // A batch whose rows do not fit each other is left whole, an error of the input where it is.
  Status leave(Status status) {
    Element row;
    for (int64_t i = rows_.rows() + 1; rows_.refused() && i < dataset().batch_size_; ++i) {
      if (environment().stopped()) return environment().status();
      MR_TRY(input().next(row, ended_));
      if (ended_) break;
    }
    return status;
  }

  BatchRows rows_;
  bool ended_ = false;
};

Result<std::unique_ptr<Iterator>> BatchDataset::iterate(const Iteration& iteration) const {
  return iterate_over_input<BatchIterator>(*this, iteration);
}

class UnbatchDataset final : public Dataset {
 public:
  UnbatchDataset(ElementSpec spec, Ref<Dataset> input)
      : Dataset("Unbatch", std::move(spec), {std::move(input)}, true) {}
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
    MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node()));
    return make_ref<UnbatchDataset>(std::move(spec), std::move(input));
  }
};

class UnbatchIterator final : public IteratorOverInput<UnbatchDataset> {
 public:
  using IteratorOverInput::IteratorOverInput;

 protected:
  Status own_fields(StateFields& state) override {
    int64_t at = at_, rows = rows_;
    MR_TRY(state.number(at));
    MR_TRY(state.number(rows, at));
    if (at == rows) return ok_status();
    MR_TRY(state.element(batch_));
    if (!state.reading()) return ok_status();
    MR_TRY(open());
    if (rows_ != rows) return data_loss("the state has a batch of ", rows_, " rows, not ", rows);
    at_ = at;
    return ok_status();
  }
  Status produce(Element& out, bool& end) override {
    end = false;
    MR_TRY(load(end));
    if (end) return ok_status();
    out.resize(batch_.size());
    for (size_t i = 0; i < batch_.size(); ++i) out[i] = batch_[i].row(at_);
    ++at_;
    return ok_status();
  }
  Status next_rows(int64_t count, BatchRows& rows, bool& end) override {
    return measure_rows(rows, [&]() -> Status {
      end = false;
      for (int64_t left = count; left > 0;) {
        MR_TRY(load(end));
        if (end) break;
        const int64_t taken = std::min(left, rows_ - at_);
        MR_TRY(rows.add_range(batch_, at_, at_ + taken));
        at_ += taken;
        left -= taken;
      }
      return ok_status();
    });
  }

 private:
  // Makes sure that the batch has a row that was not given.
  Status load(bool& end) {
    while (at_ >= rows_) {
      if (environment().stopped()) return environment().status();
      MR_TRY(input().next(batch_, end));
      if (end) break;
      MR_TRY(open());
    }
    return ok_status();
  }
  // Begins with the batch that came.
  Status open() {
    at_ = rows_ = 0;
    for (size_t i = 0; i < batch_.size(); ++i) {
      if (batch_[i].rank() < 1) {
        return invalid_argument("component ", i,
                                " of a batch must have a first dimension, got a "
                                "scalar");
      }
      if (batch_[i].dim(0) != batch_[0].dim(0)) {
        return invalid_argument(
            "Input element must have the same batch size in each component. "
            "Component 0 had size ",
            batch_[0].dim(0), " but component ", i, " had size ", batch_[i].dim(0), ".");
      }
    }
    if (!batch_.empty()) rows_ = batch_[0].dim(0);
    return ok_status();
  }

  Element batch_;
  int64_t at_ = 0, rows_ = 0;
};

Result<std::unique_ptr<Iterator>> UnbatchDataset::iterate(const Iteration& iteration) const {
  return iterate_over_input<UnbatchIterator>(*this, iteration);
}

}  // namespace

Ref<Dataset> make_batch_dataset(ElementSpec spec, Ref<Dataset> input, int64_t size,
                                bool drop_remainder) {
  return make_ref<BatchDataset>(std::move(spec), std::move(input), size, drop_remainder);
}

void register_batch(Registry& registry) {
  add_dataset_op(registry,
                 {.name = "BatchDataset",
                  .doc = "Joins elements to batches.",
                  .inputs = {{"input_dataset", "variant"}, {"batch_size", "int64"}}},
                 dataset_kernel<BatchDataset::make<false>>);
  add_dataset_op(registry,
                 {.name = "BatchDatasetV2",
                  .doc = "Joins elements to batches.",
                  .inputs = {{"input_dataset", "variant"},
                             {"batch_size", "int64"},
                             {"drop_remainder", "bool", "Leave out a last batch that is smaller."}},
                  .attrs = {{"parallel_copy", "bool = false"}}},
                 dataset_kernel<BatchDataset::make<true>>);
  add_dataset_op(
      registry,
      {.name = "ParallelBatchDataset",
       .doc = "Joins elements to batches.",
       .inputs = {{"input_dataset", "variant"},
                  {"batch_size", "int64"},
                  {"num_parallel_calls", "int64", "Not used: a batch is a copy."},
                  {"drop_remainder", "bool"}},
       .attrs = {{"parallel_copy", "bool = false"}, {"deterministic", "string = 'default'"}}},
      dataset_kernel<BatchDataset::make<true>>);
  for (const char* name : {"UnbatchDataset", "ExperimentalUnbatchDataset"}) {
    add_dataset_op(registry,
                   {.name = std::string_view(name),
                    .doc = "The rows of the elements of a dataset.",
                    .inputs = {{"input_dataset", "variant"}}},
                   dataset_kernel<UnbatchDataset::make>);
  }
}

}  // namespace millrace::data
