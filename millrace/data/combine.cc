// Datasets made of several, or of one several times: repeat, concatenate, zip.

#include "millrace/data/combine.h"

#include <algorithm>

#include "millrace/data/batch_rows.h"
#include "millrace/data/dataset_op.h"
#include "millrace/data/state.h"

namespace millrace::data {
namespace {

// A dataset `count` times; a negative count: without end.
class RepeatDataset final : public Dataset {
 public:
  RepeatDataset(Ref<Dataset> input, int64_t count)
      : Dataset("Repeat", input->spec(), {input}, count > kLong), count_(count) {}
  int64_t size() const override {
    const int64_t n = inputs()[0]->size();
    if (count_ == 0 || n == 0) return 0;
    if (count_ < 0) return kInfinite;
    int64_t product;
    if (n < 0 || __builtin_mul_overflow(n, count_, &product)) return n < 0 ? n : kInfinite;
    return product;
  }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
    MR_TRY_ASSIGN(const int64_t count, ctx.int_scalar_input(1));
    return make_ref<RepeatDataset>(std::move(input), count);
  }

  const int64_t count_;
};

class RepeatIterator final : public IteratorOf<RepeatDataset> {
 public:
  RepeatIterator(const RepeatDataset& dataset, const Iteration& iteration)
      : IteratorOf(dataset, iteration) {}

 protected:
  Status fields(StateFields& state) override {
    MR_TRY(state.number(epoch_, 0, StateFields::kMostCounted));
    MR_TRY(state.flag(any_));
    return state.iterator(input_, [this] { return iterate_input(); });
  }
  Status produce(Element& out, bool& end) override {
    do {
      MR_TRY(open(end));
      if (end) break;
      Status status = input_->next(out, end);
      if (!end || !status.ok()) {
        any_ = true;
        return status;
      }
    } while (end_epoch());
    return ok_status();
  }
  Status next_rows(int64_t count, BatchRows& rows, bool& end) override {
    return measure_rows(rows, [&]() -> Status {
      const int64_t wanted = rows.rows() + count;
      do {
        MR_TRY(open(end));
        if (end) break;
        const int64_t before = rows.rows();
        Status status = input_->next_rows(wanted - before, rows, end);
        any_ = any_ || rows.rows() > before || !status.ok();
        if (!end || !status.ok()) return status;
      } while (end_epoch());
      return ok_status();
    });
  }

 private:
  // Begins an epoch unless it is inside of one; sets `end` after the last.
  Status open(bool& end) {
    if (environment().stopped()) return environment().status();
    end = dataset().count_ >= 0 && epoch_ >= dataset().count_;
    if (end || input_ != nullptr) return ok_status();
    MR_TRY_ASSIGN(input_, iterate_input());
    return ok_status();
  }
  // After the last element of an epoch; false when no other follows: nothing, repeated for ever, is
  // nothing.
  bool end_epoch() {
    input_ = nullptr;
    if (!any_ && dataset().count_ < 0) return false;
    ++epoch_;
    any_ = false;
    return true;
  }

  std::unique_ptr<Iterator> input_;  // null between two epochs
  int64_t epoch_ = 0;
  bool any_ = false;  // this epoch had an element
};

Result<std::unique_ptr<Iterator>> RepeatDataset::iterate(const Iteration& iteration) const {
  return std::make_unique<RepeatIterator>(*this, iteration);
}

// One dataset after the other.
class ConcatenateDataset final : public Dataset {
 public:
  ConcatenateDataset(ElementSpec spec, Ref<Dataset> first, Ref<Dataset> second)
      : Dataset("Concatenate", std::move(spec), {std::move(first), std::move(second)}) {}
  int64_t size() const override {
    const int64_t a = inputs()[0]->size(), b = inputs()[1]->size();
    if (a == kInfinite || b == kInfinite) return kInfinite;
    int64_t sum;
    if (a < 0 || b < 0) return kUnknownSize;
    return __builtin_add_overflow(a, b, &sum) ? kInfinite : sum;
  }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(Ref<Dataset> first, dataset_input(ctx, 0));
    MR_TRY_ASSIGN(Ref<Dataset> second, dataset_input(ctx, 1));
    MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node()));
    if (first->spec().types != second->spec().types) {
      return invalid_argument("datasets of different types cannot be concatenated: [",
                              str_join(first->spec().types, ","), "] and [",
                              str_join(second->spec().types, ","), "]");
    }
    return make_ref<ConcatenateDataset>(std::move(spec), std::move(first), std::move(second));
  }
};

class ConcatenateIterator final : public IteratorOf<ConcatenateDataset> {
 public:
  ConcatenateIterator(const ConcatenateDataset& dataset, const Iteration& iteration)
      : IteratorOf(dataset, iteration) {}

 protected:
  Status fields(StateFields& state) override {
    MR_TRY(state.number(part_, 0, 2));
    return state.iterator(input_, [this] { return open(); });
  }
  Status produce(Element& out, bool& end) override {
    for (; part_ < 2; ++part_) {
      if (input_ == nullptr) {
        MR_TRY_ASSIGN(input_, open());
      }
      MR_TRY(input_->next(out, end));
      if (!end) return ok_status();
      input_ = nullptr;
    }
    end = true;
    return ok_status();
  }

 private:
  Result<std::unique_ptr<Iterator>> open() const {
    if (part_ < 2) return iterate_input(static_cast<size_t>(part_));
    return data_loss("the state is inside of a dataset after the last");
  }

  std::unique_ptr<Iterator> input_;
  int64_t part_ = 0;
};

Result<std::unique_ptr<Iterator>> ConcatenateDataset::iterate(const Iteration& iteration) const {
  return std::make_unique<ConcatenateIterator>(*this, iteration);
}

// An element of each dataset, as components of one.
class ZipDataset final : public Dataset {
 public:
  ZipDataset(ElementSpec spec, std::vector<Ref<Dataset>> inputs)
      : Dataset("Zip", std::move(spec), std::move(inputs)) {}
  int64_t size() const override {
    int64_t least = kInfinite;
    for (const Ref<Dataset>& input : inputs()) {
      const int64_t n = input->size();
      if (n == kUnknownSize) return n;
      if (n != kInfinite) least = least == kInfinite ? n : std::min(least, n);
    }
    return least;
  }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node()));
    MR_TRY_ASSIGN(std::vector<Ref<Dataset>> inputs, dataset_inputs(ctx));
    return make_ref<ZipDataset>(std::move(spec), std::move(inputs));
  }
};

class ZipIterator final : public IteratorOf<ZipDataset> {
 public:
  ZipIterator(const ZipDataset& dataset, const Iteration& iteration,
              std::vector<std::unique_ptr<Iterator>> inputs)
      : IteratorOf(dataset, iteration), inputs_(std::move(inputs)) {}

 protected:
  Status fields(StateFields& state) override {
    MR_TRY(state.flag(ended_));
    for (const auto& input : inputs_) MR_TRY(state.iterator(*input));
    return ok_status();
  }
  Status produce(Element& out, bool& end) override {
    end = ended_;
    out.clear();
    // All are asked, also after an error, so that they stay side by side.
    Status first;
    for (const auto& input : inputs_) {
      if (end) break;
      Status status = input->next(part_, end);
      if (!status.ok()) {
        if (first.ok()) first = std::move(status);
        continue;
      }
      for (Tensor& component : part_) out.push_back(std::move(component));
    }
    ended_ = end;
    // An input may end with an error: that is told first.
    return first;
  }

 private:
  const std::vector<std::unique_ptr<Iterator>> inputs_;
  Element part_;
  bool ended_ = false;
};

Result<std::unique_ptr<Iterator>> ZipDataset::iterate(const Iteration& iteration) const {
  MR_TRY_ASSIGN(auto inputs, iterate_inputs(*this, iteration));
  return std::make_unique<ZipIterator>(*this, iteration, std::move(inputs));
}

}  // namespace

Ref<Dataset> make_repeat_dataset(Ref<Dataset> input, int64_t count) {
  return make_ref<RepeatDataset>(std::move(input), count);
}

void register_combine(Registry& registry) {
  add_dataset_op(registry,
                 {.name = "RepeatDataset",
                  .doc = "A dataset, again and again.",
                  .inputs = {{"input_dataset", "variant"},
                             {"count", "int64", "How often; negative: without end."}}},
                 dataset_kernel<RepeatDataset::make>);
  add_dataset_op(registry,
                 {.name = "ConcatenateDataset",
                  .doc = "One dataset after the other.",
                  .inputs = {{"input_dataset", "variant"}, {"another_dataset", "variant"}}},
                 dataset_kernel<ConcatenateDataset::make>);
  add_dataset_op(registry,
                 {.name = "ZipDataset",
                  .doc = "Elements made of one of each dataset, as long as all have one.",
                  .inputs = {{"input_datasets", "N*variant"}},
                  .attrs = {{"N", "int >= 1"}}},
                 dataset_kernel<ZipDataset::make>);
}

}  // namespace millrace::data
