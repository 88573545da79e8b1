#pragma once

#include <span>

#include "millrace/eager/tape.h"

namespace millrace::eager {

class PreparedOp;

// The tapes of this thread that follow an op's inputs, asked once before the op runs.
class Recorder {
 public:
  explicit Recorder(std::span<EagerTensor* const> inputs) : inputs_(inputs) {
    if (Tape::innermost() != nullptr) [[unlikely]]
      find_tapes();
  }
  // Whether there are any: then nothing may be written over.
  bool any() const { return !tapes_.empty(); }
  // See orders_followed().
  int orders() const;
  // Whether some tape follows input `i`.
  bool follows(size_t i) const;
  void record(PreparedOp& op, const TensorRef* outputs);
  void record(Ref<Backward> backward, std::span<const TensorRef> outputs);

 private:
  void find_tapes();
  Ref<Record> make_record() const;
  void finish(Ref<Record> record, int64_t bytes) const;

  std::span<EagerTensor* const> inputs_;
  std::vector<Tape*> tapes_;
};

}  // namespace millrace::eager
