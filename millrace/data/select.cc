// Datasets that hand on some of the elements of another: take, skip, shard, errors left out.

#include <algorithm>

#include "millrace/data/batch_rows.h"
#include "millrace/data/dataset_op.h"
#include "millrace/data/state.h"

namespace millrace::data {
namespace {

// The first elements; a negative count: all.
class TakeDataset final : public Dataset {
 public:
  TakeDataset(Ref<Dataset> input, int64_t count)
      : Dataset("Take", input->spec(), {input}), count_(count) {}
  int64_t size() const override {
    const int64_t n = inputs()[0]->size();
    if (count_ < 0) return n;
    if (count_ == 0) return 0;
    if (n == kInfinite) return count_;
    return n == kUnknownSize ? n : std::min(n, count_);
  }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
    MR_TRY_ASSIGN(const int64_t count, ctx.int_scalar_input(1));
    return make_ref<TakeDataset>(std::move(input), count);
  }

  const int64_t count_;
};

class TakeIterator final : public IteratorOverInput<TakeDataset> {
 public:
  using IteratorOverInput::IteratorOverInput;

 protected:
  Status own_fields(StateFields& state) override {
    return state.number(taken_, 0, StateFields::kMostCounted);
  }
  Status produce(Element& out, bool& end) override {
    end = dataset().count_ >= 0 && taken_ >= dataset().count_;
    if (end) return ok_status();
    MR_TRY(input().next(out, end));
    if (!end) ++taken_;
    return ok_status();
  }
  Status next_rows(int64_t count, BatchRows& rows, bool& end) override {
    return measure_rows(rows, [&] {
      const int64_t limit = dataset().count_;
      const int64_t wanted =
          limit < 0 ? count : std::min(count, std::max(limit - taken_, int64_t{0}));
      const int64_t before = rows.rows();
      Status status = input().next_rows(wanted, rows, end);
      taken_ += rows.rows() - before;
      end = end || wanted < count;
      return status;
    });
  }

 private:
  int64_t taken_ = 0;
};

Result<std::unique_ptr<Iterator>> TakeDataset::iterate(const Iteration& iteration) const {
  return iterate_over_input<TakeIterator>(*this, iteration);
}

// All but the first elements; a negative count: none.
class SkipDataset final : public Dataset {
 public:
  SkipDataset(Ref<Dataset> input, int64_t count)
      : Dataset("Skip", input->spec(), {input}, count > kLong), count_(count) {}
  int64_t size() const override {
    const int64_t n = inputs()[0]->size();
    if (n < 0) return n;
    return count_ < 0 ? 0 : std::max<int64_t>(n - count_, 0);
  }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
    MR_TRY_ASSIGN(const int64_t count, ctx.int_scalar_input(1));
    return make_ref<SkipDataset>(std::move(input), count);
  }

  const int64_t count_;
};

class SkipIterator final : public IteratorOverInput<SkipDataset> {
 public:
  using IteratorOverInput::IteratorOverInput;

 protected:
  Status own_fields(StateFields& state) override { return state.number(skipped_); }
  Status produce(Element& out, bool& end) override {
    MR_TRY(skip(end));
    return end ? ok_status() : input().next(out, end);
  }
  Status next_rows(int64_t count, BatchRows& rows, bool& end) override {
    return measure_rows(rows, [&]() -> Status {
      MR_TRY(skip(end));
      return end ? ok_status() : input().next_rows(count, rows, end);
    });
  }

 private:
  // Passes over what is left out.
  Status skip(bool& end) {
    end = dataset().count_ < 0;
    for (Element out; !end && skipped_ < dataset().count_;) {
      if (environment().stopped()) return environment().status();
      ++skipped_;
      MR_TRY(input().next(out, end));
    }
    return ok_status();
  }

  int64_t skipped_ = 0;
};

Result<std::unique_ptr<Iterator>> SkipDataset::iterate(const Iteration& iteration) const {
  return iterate_over_input<SkipIterator>(*this, iteration);
}

// Every num_shards-th element, from `index` on.
class ShardDataset final : public Dataset {
 public:
  ShardDataset(Ref<Dataset> input, int64_t shards, int64_t index)
      : Dataset("Shard", input->spec(), {input}, shards > kLong), shards_(shards), index_(index) {}
  int64_t size() const override {
    const int64_t n = inputs()[0]->size();
    return n < 0 ? n : n / shards_ + (index_ < n % shards_ ? 1 : 0);
  }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
    MR_TRY_ASSIGN(const int64_t shards, count_input(ctx, 1, "Number of shards", 1));
    MR_TRY_ASSIGN(const int64_t index, ctx.int_scalar_input(2));
    if (index < 0 || index >= shards) {
      return invalid_argument("Index must be between 0 and ", shards - 1, ", got ", index);
    }
    return make_ref<ShardDataset>(std::move(input), shards, index);
  }

  const int64_t shards_, index_;
};

class ShardIterator final : public IteratorOverInput<ShardDataset> {
 public:
  using IteratorOverInput::IteratorOverInput;

 protected:
  Status own_fields(StateFields& state) override {
    return state.number(phase_, 0, dataset().shards_ - 1);
  }
  Status produce(Element& out, bool& end) override {
    for (;;) {
      if (environment().stopped()) return environment().status();
      const bool mine = phase_ == dataset().index_;
      phase_ = phase_ + 1 == dataset().shards_ ? 0 : phase_ + 1;
      MR_TRY(input().next(out, end));
      if (end || mine) return ok_status();
    }
  }

 private:
  int64_t phase_ = 0;  // of the next element of the input
};

Result<std::unique_ptr<Iterator>> ShardDataset::iterate(const Iteration& iteration) const {
  return iterate_over_input<ShardIterator>(*this, iteration);
}

// The elements that are no errors.
class IgnoreErrorsDataset final : public Dataset {
 public:
  explicit IgnoreErrorsDataset(Ref<Dataset> input)
      : Dataset("IgnoreErrors", input->spec(), {input}, true) {}
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
    return make_ref<IgnoreErrorsDataset>(std::move(input));
  }
};

class IgnoreErrorsIterator final : public IteratorOverInput<IgnoreErrorsDataset> {
 public:
  using IteratorOverInput::IteratorOverInput;

 protected:
  Status produce(Element& out, bool& end) override {
    // Errors that come again and again would be ignored for ever.
    constexpr int kMaxErrors = 1 << 20;
    for (int errors = 0;; ++errors) {
      if (environment().stopped()) return environment().status();
      end = false;
      Status status = input().next(out, end);
      if (status.ok() || errors == kMaxErrors) return status;
      if (end) return ok_status();  // with an error
    }
  }
};

Result<std::unique_ptr<Iterator>> IgnoreErrorsDataset::iterate(const Iteration& iteration) const {
  return iterate_over_input<IgnoreErrorsIterator>(*this, iteration);
}

}  // namespace

void register_select(Registry& registry) {
  add_dataset_op(
      registry,
      {.name = "TakeDataset",
       .doc = "The first elements of a dataset.",
       .inputs = {{"input_dataset", "variant"}, {"count", "int64", "How many; negative: all."}}},
      dataset_kernel<TakeDataset::make>);
  add_dataset_op(
      registry,
      {.name = "SkipDataset",
       .doc = "All but the first elements of a dataset.",
       .inputs = {{"input_dataset", "variant"}, {"count", "int64", "How many; negative: all."}}},
      dataset_kernel<SkipDataset::make>);
  add_dataset_op(
      registry,
      {.name = "ShardDataset",
       .doc = "Every num_shards-th element of a dataset, from index on.",
       .inputs = {{"input_dataset", "variant"}, {"num_shards", "int64"}, {"index", "int64"}},
       .attrs = {{"require_non_empty", "bool = false"}}},
      dataset_kernel<ShardDataset::make>);
  for (const char* name : {"IgnoreErrorsDataset", "ExperimentalIgnoreErrorsDataset"}) {
    add_dataset_op(registry,
                   {.name = std::string_view(name),
                    .doc = "The elements of a dataset that can be made without an error.",
                    .inputs = {{"input_dataset", "variant"}},
                    .attrs = {{"log_warning", "bool = false"}}},
                   dataset_kernel<IgnoreErrorsDataset::make>);
  }
}

}  // namespace millrace::data
