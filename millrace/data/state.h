#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/function.h"
#include "millrace/data/dataset.h"
#include "millrace/tensor/variant.h"

namespace millrace::data {

// Where an iterator stands: numbers and texts in the order in which the stages wrote them, the last
// stage first, and the tensors they hold. A value: it can be kept in a checkpoint.
class SavedState final : public VariantObject {
 public:
  static constexpr std::string_view kTypeName = "millrace::IteratorState";

  std::string bytes;
  std::vector<Tensor> tensors;

  std::string_view type_name() const override { return kTypeName; }
  Status encode(std::string& metadata, std::vector<Tensor>& out) const override;
  static Result<Ref<VariantObject>> decode(std::string_view metadata, std::vector<Tensor> tensors);
};

// Writes a state, entry by entry.
class StateWriter {
 public:
  StateWriter() : state_(make_ref<SavedState>()) {}
  // Says whose entries follow.
  void stage(std::string_view name);
  void number(int64_t value);
  void flag(bool value) { number(value ? 1 : 0); }
  void text(std::string_view value);
  void tensor(const Tensor& value);
  void element(const Element& value);
  // What save_op_states() gave of a function.
  void op_states(std::string_view value);
  Ref<SavedState> finish() { return std::move(state_); }

 private:
  void entry(char kind, uint64_t value);
  Ref<SavedState> state_;
};

// Reads it again, in the same order. Every entry knows its kind: INVALID_ARGUMENT for a state that
// another pipeline wrote, DATA_LOSS for one that is cut short or damaged.
class StateReader {
 public:
  explicit StateReader(const SavedState& state) : state_(state) {}
  Status stage(std::string_view name);
  Result<int64_t> number();
  // A number in [low, high].
  Result<int64_t> number_in(int64_t low, int64_t high);
  Result<bool> flag();
  Result<std::string> text();
  Result<Tensor> tensor();
  Result<Element> element();
  // Empty in a state of an earlier version, which has none.
  Result<std::string> op_states();
  // DATA_LOSS unless all was read.
  Status finish() const;

 private:
  Result<uint64_t> entry(char kind);
  Result<std::string> bytes(char kind);

  const SavedState& state_;
  size_t at_ = 0;
  size_t next_tensor_ = 0;
};

// Entries of a state, said once for both ways: each call writes the value, or replaces it by the
// one that was written, checked. Errors are those of StateReader.
class StateFields {
 public:
  explicit StateFields(StateWriter& to) : to_(&to) {}
  explicit StateFields(StateReader& from) : from_(&from) {}
  bool reading() const { return from_ != nullptr; }

  Status flag(bool& value);
  // What a count can have come to that is counted on.
  static constexpr int64_t kMostCounted = int64_t{1} << 62;
  // A number that is in [low, high].
  Status number(int64_t& value, int64_t low = 0, int64_t high = INT64_MAX);
  // Any number.
  Status bits(uint64_t& value);
  Status text(std::string& value);
  Status op_states(std::string& value);
  Status element(Element& value);
  // At most `most` elements, in a vector or a deque.
  template <class Elements>
  Status elements(Elements& values, int64_t most = INT64_MAX) {
    return list(values, most, [this](Element& value) { return element(value); });
  }
  // A list of which `item` says the fields of one.
  template <class List, class Item>
  Status list(List& values, int64_t most, Item item);
  // The position of another iterator.
  Status iterator(Iterator& other);
  // The same of one that may be null, and is made anew where it was there.
  using Make = FunctionRef<Result<std::unique_ptr<Iterator>>()>;
  Status iterator(std::unique_ptr<Iterator>& other, Make make);

 private:
  StateWriter* to_ = nullptr;
  StateReader* from_ = nullptr;
};

template <class List, class Item>
Status StateFields::list(List& values, int64_t most, Item item) {
  auto count = static_cast<int64_t>(values.size());
  MR_TRY(number(count, 0, most));
  if (!reading()) {
    for (auto& value : values) MR_TRY(item(value));
    return ok_status();
  }
  // The count is only said: the list grows as its items are found.
  values.clear();
  for (int64_t i = 0; i < count; ++i) MR_TRY(item(values.emplace_back()));
  return ok_status();
}

}  // namespace millrace::data
