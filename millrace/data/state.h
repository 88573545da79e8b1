#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace millrace::data
