#include "millrace/data/state.h"

namespace millrace::data {
namespace {

// An entry is its kind and a number in seven-bit groups, lowest first, of which all but the last
// have the top bit. A text follows its length; a tensor is the number of a tensor in the list.
constexpr char kStage = 'S';
constexpr char kNumber = 'n';
constexpr char kText = 't';
constexpr char kTensor = 'T';
constexpr char kElement = 'E';
constexpr char kOpStates = 'R';

constexpr int64_t kMaxComponents = 1 << 20;

}  // namespace

Status SavedState::encode(std::string& metadata, std::vector<Tensor>& out) const {
  metadata = bytes;
  out = tensors;
  return ok_status();
}

Result<Ref<VariantObject>> SavedState::decode(std::string_view metadata,
                                              std::vector<Tensor> tensors) {
  Ref<SavedState> state = make_ref<SavedState>();
  state->bytes = std::string(metadata);
  state->tensors = std::move(tensors);
  return Ref<VariantObject>(std::move(state));
}

void StateWriter::entry(char kind, uint64_t value) {
  std::string& bytes = state_->bytes;
  bytes += kind;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  bytes += static_cast<char>(value);
}

void StateWriter::stage(std::string_view name) {
  entry(kStage, name.size());
  state_->bytes += name;
}

void StateWriter::number(int64_t value) { entry(kNumber, static_cast<uint64_t>(value)); }

void StateWriter::text(std::string_view value) {
  entry(kText, value.size());
  state_->bytes += value;
}

void StateWriter::tensor(const Tensor& value) {
  entry(kTensor, state_->tensors.size());
  state_->tensors.push_back(value);
}

void StateWriter::element(const Element& value) {
  entry(kElement, value.size());
  for (const Tensor& component : value) tensor(component);
}

void StateWriter::op_states(std::string_view value) {
  entry(kOpStates, value.size());
  state_->bytes += value;
}

Result<uint64_t> StateReader::entry(char kind) {
  const std::string& bytes = state_.bytes;
  if (at_ >= bytes.size()) return data_loss("the state of the iterator ends too early");
  if (bytes[at_] != kind) {
    return invalid_argument("the state is of another pipeline: expected an entry '", kind,
                            "', got '", bytes[at_], "' at byte ", at_);
  }
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (++at_ >= bytes.size()) return data_loss("the state of the iterator ends too early");
    const auto byte = static_cast<unsigned char>(bytes[at_]);
    value |= uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) {
      ++at_;
      return value;
    }
  }
  return data_loss("the state of the iterator has a number of more than 64 bits");
}

Status StateReader::stage(std::string_view name) {
  MR_TRY_ASSIGN(const uint64_t size, entry(kStage));
  if (size > state_.bytes.size() - at_)
    return data_loss("the state of the iterator ends too early");
  const std::string_view found = std::string_view(state_.bytes).substr(at_, size);
  if (found != name) {
    return invalid_argument("the state is of another pipeline: it has a stage ", found,
                            " where this one has ", name);
  }
  at_ += size;
  return ok_status();
}

Result<int64_t> StateReader::number() {
  MR_TRY_ASSIGN(const uint64_t value, entry(kNumber));
  return static_cast<int64_t>(value);
}

Result<int64_t> StateReader::number_in(int64_t low, int64_t high) {
  MR_TRY_ASSIGN(const int64_t value, number());
  if (value < low || value > high) {
    return data_loss("the state of the iterator has ", value, " where [", low, ",", high,
                     "] is possible");
  }
  return value;
}

Result<bool> StateReader::flag() {
  MR_TRY_ASSIGN(const int64_t value, number_in(0, 1));
  return value == 1;
}

Result<std::string> StateReader::bytes(char kind) {
  MR_TRY_ASSIGN(const uint64_t size, entry(kind));
  if (size > state_.bytes.size() - at_)
    return data_loss("the state of the iterator ends too early");
  std::string value = state_.bytes.substr(at_, size);
  at_ += size;
  return value;
}

Result<std::string> StateReader::text() { return bytes(kText); }

Result<std::string> StateReader::op_states() {
  if (at_ >= state_.bytes.size() || state_.bytes[at_] != kOpStates) return std::string();
  return bytes(kOpStates);
}

Result<Tensor> StateReader::tensor() {
  MR_TRY_ASSIGN(const uint64_t index, entry(kTensor));
  if (index != next_tensor_ || index >= state_.tensors.size()) {
    return data_loss("the state of the iterator lacks tensor ", index);
  }
  return state_.tensors[next_tensor_++];
}

Result<Element> StateReader::element() {
  MR_TRY_ASSIGN(const uint64_t count, entry(kElement));
  if (count > kMaxComponents)
    return data_loss("the state has an element of ", count, " components");
  Element value;
  for (uint64_t i = 0; i < count; ++i) {
    MR_TRY_ASSIGN(Tensor component, tensor());
    value.push_back(std::move(component));
  }
  return value;
}

Status StateReader::finish() const {
  if (at_ == state_.bytes.size() && next_tensor_ == state_.tensors.size()) return ok_status();
  return invalid_argument("the state is of another pipeline: it goes on after the last stage");
}

Status StateFields::flag(bool& value) {
  if (to_ != nullptr) {
    to_->flag(value);
    return ok_status();
  }
  MR_TRY_ASSIGN(value, from_->flag());
  return ok_status();
}

Status StateFields::number(int64_t& value, int64_t low, int64_t high) {
  if (to_ != nullptr) {
    to_->number(value);
    return ok_status();
  }
  MR_TRY_ASSIGN(value, from_->number_in(low, high));
  return ok_status();
}

Status StateFields::bits(uint64_t& value) {
  auto number = static_cast<int64_t>(value);
  MR_TRY(this->number(number, INT64_MIN));
  value = static_cast<uint64_t>(number);
  return ok_status();
}

Status StateFields::text(std::string& value) {
  if (to_ != nullptr) {
    to_->text(value);
    return ok_status();
  }
  MR_TRY_ASSIGN(value, from_->text());
  return ok_status();
}

Status StateFields::op_states(std::string& value) {
  if (to_ != nullptr) {
    to_->op_states(value);
    return ok_status();
  }
  MR_TRY_ASSIGN(value, from_->op_states());
  return ok_status();
}

Status StateFields::element(Element& value) {
  if (to_ != nullptr) {
    to_->element(value);
    return ok_status();
  }
  MR_TRY_ASSIGN(value, from_->element());
  return ok_status();
}

Status StateFields::iterator(Iterator& other) {
  return to_ != nullptr ? other.save(*to_) : other.restore(*from_);
}

Status StateFields::iterator(std::unique_ptr<Iterator>& other, Make make) {
  bool there = other != nullptr;
  MR_TRY(flag(there));
  if (reading()) {
    other = nullptr;
    if (there) {
      MR_TRY_ASSIGN(other, make());
    }
  }
  return there ? iterator(*other) : ok_status();
}

}  // namespace millrace::data
