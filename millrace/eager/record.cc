#include "millrace/eager/record.h"

#include <algorithm>
#include <limits>

#include "millrace/eager/prepared_op.h"

namespace millrace::eager {

namespace {

// Memory that is nobody's, large enough for any tensor.
const Ref<Buffer>& no_memory() {
  static const Ref<Buffer>& buffer = *new Ref<Buffer>(
      Buffer::borrow(nullptr, std::numeric_limits<size_t>::max(), UniqueFunction<void()>()));
  return buffer;
}

}  // namespace

EagerTensor::~EagerTensor() {
  if (const Record* record = this->record()) record->release();
}

void Record::leave(uint64_t tape) {
  std::erase(tapes_, tape);
  if (!tapes_.empty()) return;
  op = nullptr;
  backward = nullptr;
  edges.clear();
  inputs.clear();
  outputs.clear();
}

void Record::own(EagerTensor& tensor, int index) {
  retain();
  tensor.output_ = index;
  tensor.record_.store(this, std::memory_order_release);
}

Record::Edge Record::of(EagerTensor& tensor) {
  Record* record = tensor.record();
  if (record == nullptr) {
    Ref<Record> leaf = make_ref<Record>();
    if (tensor.record_.compare_exchange_strong(record, leaf.get(), std::memory_order_acq_rel)) {
      record = leaf.detach();
    }
  }
  return {Ref<Record>(record), tensor.output()};
}

Tensor without_elements(DType dtype, const Shape& shape) { return {dtype, shape, no_memory()}; }

bool has_elements(const Tensor& tensor) { return !(tensor.buffer() == no_memory()); }

}  // namespace millrace::eager
