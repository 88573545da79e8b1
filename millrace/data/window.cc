// Elements joined to datasets of a few.

#include <algorithm>
#include <deque>

#include "millrace/data/dataset_op.h"
#include "millrace/data/elements_dataset.h"
#include "millrace/data/outcome.h"

namespace millrace::data {
namespace {

class WindowDataset final : public Dataset {
 public:
  WindowDataset(ElementSpec spec, Ref<Dataset> input, int64_t size, int64_t shift, int64_t stride,
                bool drop_remainder)
      : Dataset("Window", std::move(spec), {std::move(input)}, true),
        shift_(shift),
        stride_(stride),
        span_((size - 1) * stride + 1),
        drop_remainder_(drop_remainder) {}
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
    MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node()));
    MR_TRY_ASSIGN(const int64_t size, count_input(ctx, 1, "Window size", 1));
    MR_TRY_ASSIGN(const int64_t shift, count_input(ctx, 2, "Window shift", 1));
    MR_TRY_ASSIGN(const int64_t stride, count_input(ctx, 3, "Window stride", 1));
    MR_TRY_ASSIGN(const bool drop, ctx.scalar_input<bool>(4));
    int64_t span;
    if (__builtin_mul_overflow(size - 1, stride, &span) || span == INT64_MAX) {
      return invalid_argument("windows of ", size, " elements ", stride,
                              " apart span more than "
                              "2^63-1");
    }
    return make_ref<WindowDataset>(std::move(spec), std::move(input), size, shift, stride, drop);
  }

  const int64_t shift_, stride_;
  const int64_t span_;  // elements from the first of a window to its last
  const bool drop_remainder_;
};

class WindowIterator final : public IteratorOverInput<WindowDataset> {
 public:
  using IteratorOverInput::IteratorOverInput;

 protected:
  Status own_fields(StateFields& state) override {
    MR_TRY(state.flag(ended_));
    return state.list(buffer_, dataset().span_,
                      [&](Outcome& outcome) { return outcome.fields(state); });
  }
  Status produce(Element& out, bool& end) override {
    const int64_t span = dataset().span_;
    while (!ended_ && filled() < span) {
      if (environment().stopped()) return environment().status();
      Outcome& outcome = buffer_.emplace_back();
      outcome.fill(input());
      ended_ = outcome.end;
      if (ended_) buffer_.pop_back();
    }
    end = buffer_.empty() || (dataset().drop_remainder_ && filled() < span);
    if (end) return ok_status();
    const Status status = window(out);
    int64_t left = dataset().shift_;
    for (; left > 0 && !buffer_.empty(); --left) buffer_.pop_front();
    Element skipped;
    for (; left > 0 && !ended_; --left) {
      if (environment().stopped()) return environment().status();
      // An error is of an element that nobody wants.
      if (!input().next(skipped, ended_).ok()) ended_ = false;
    }
    return status;
  }

 private:
  int64_t filled() const { return static_cast<int64_t>(buffer_.size()); }

  // A dataset for each component; the error of the first element that has one.
  Status window(Element& out) const {
    const ElementSpec& spec = dataset().inputs()[0]->spec();
    out.clear();
    for (int64_t i = 0; i < filled(); i += dataset().stride_) {
      MR_TRY(buffer_[static_cast<size_t>(i)].status);
    }
    for (size_t c = 0; c < buffer_[0].element.size(); ++c) {
      std::vector<Element> elements;
      for (int64_t i = 0; i < filled(); i += dataset().stride_) {
        const Element& element = buffer_[static_cast<size_t>(i)].element;
        if (c < element.size()) elements.push_back({element[c]});
      }
      ElementSpec one;
      if (c < spec.types.size()) one = {{spec.types[c]}, {spec.shapes[c]}};
      out.push_back(dataset_tensor(
          make_ref<ElementsDataset>("WindowElements", std::move(one), std::move(elements))));
    }
    return ok_status();
  }

  std::deque<Outcome> buffer_;  // errors have their places
  bool ended_ = false;
};

Result<std::unique_ptr<Iterator>> WindowDataset::iterate(const Iteration& iteration) const {
  return iterate_over_input<WindowIterator>(*this, iteration);
}

}  // namespace

void register_window(Registry& registry) {
  add_dataset_op(registry,
                 {.name = "WindowDataset",
                  .doc = "Joins elements to datasets, one for each component.",
                  .inputs = {{"input_dataset", "variant"},
                             {"size", "int64", "Elements of a window."},
                             {"shift", "int64", "From the beginning of a window to the next."},
                             {"stride", "int64", "From one element of a window to the next."},
                             {"drop_remainder", "bool"}}},
                 dataset_kernel<WindowDataset::make>);
}

}  // namespace millrace::data
