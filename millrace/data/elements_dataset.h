#pragma once

#include <vector>

#include "millrace/data/counting_iterator.h"

namespace millrace::data {

// A dataset of elements that are there: what windows and groups are. It can be written into
// messages, so that the position of a stage that holds one can be saved.
class ElementsDataset final : public Dataset {
 public:
  ElementsDataset(std::string_view name, ElementSpec spec, std::vector<Element> elements)
      : Dataset(name, std::move(spec)), elements_(std::move(elements)) {}
  int64_t size() const override { return static_cast<int64_t>(elements_.size()); }
  Status get(int64_t i, Element& out) const {
    out = elements_[static_cast<size_t>(i)];
    return ok_status();
  }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override {
    return std::make_unique<CountingIterator<ElementsDataset>>(*this, iteration);
  }
  // Name, types and shapes, and the elements, as a SavedState has them.
  Status encode(std::string& metadata, std::vector<Tensor>& tensors) const override;
  // DATA_LOSS or INVALID_ARGUMENT for what encode() cannot have written.
  static Result<Ref<VariantObject>> decode(std::string_view metadata, std::vector<Tensor> tensors);

 private:
  const std::vector<Element> elements_;
};

}  // namespace millrace::data
