#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "millrace/eager/eager_tensor.h"

namespace millrace::eager {

class PreparedOp;

// How gradients go back through something that is not one op: a function of the user's, a traced
// function. Called by Tape::gradient() on its thread.
class Backward : public RefCounted {
 public:
  // The gradients of the inputs (one for each, perhaps none) from those of the outputs, some of
  // which may be none.
  virtual Result<std::vector<EagerGradient>> gradients(
      std::span<const EagerGradient> output_gradients) = 0;
};

// One thing that ran while a tape was looking, or a tensor that a tape was told to watch (a leaf).
// Holds what the gradient reads and no more; tensors that came out of it point to it, it points to
// the records that its inputs came from. Changed only by the thread of the tapes it is on.
class Record final : public RefCounted {
 public:
  struct Edge {
    Ref<Record> from;  // null: no tape has seen this input
    int32_t output = 0;
  };

  // A leaf.
  Record() = default;

  Ref<PreparedOp> op;  // one of the two is there, but for a leaf and what all tapes have left
  Ref<Backward> backward;
  std::vector<Edge> edges;  // by input
  // By input and output: the tensor where the gradient reads its elements, else one that has only
  // type and shape (see without_elements()). Empty with a `backward`.
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  int32_t num_outputs = 0;  // 0: a leaf

  bool leaf() const { return num_outputs == 0; }

  // The tapes that it is on, by id: fixed when it is made, but for those that end.
  bool on(uint64_t tape) const {
    for (uint64_t id : tapes_) {
      if (id == tape) return true;
    }
    return false;
  }
  void join(uint64_t tape) { tapes_.push_back(tape); }
  // The tape has no use for it any more. Without any tape it holds nothing.
  void leave(uint64_t tape);
  bool only_on(uint64_t tape) const { return tapes_.size() == 1 && tapes_[0] == tape; }

  // Makes `tensor`, of which its maker has the only reference, output `index` of this record.
  void own(EagerTensor& tensor, int index);
  // The record that stands for `tensor` on tapes: its own, or a leaf, made by whoever asks first.
  static Edge of(EagerTensor& tensor);

 private:
  std::vector<uint64_t> tapes_;
};

// A tensor of type and shape alone: its elements must not be touched.
Tensor without_elements(DType dtype, const Shape& shape);
bool has_elements(const Tensor& tensor);

}  // namespace millrace::eager
