#pragma once

#include <string>
#include <utility>

#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// The storage of a reference variable: what a reference edge points to. The tensor is invalid until
// the variable is initialised.
class RefCell : public RefCounted {
 public:
  // The variable's name, for messages.
  std::string name;

  // Guards `tensor` itself, not the elements: an op that updates elements in place holds it only
  // when asked for use_locking, as reference variables promise no more.
  Mutex mu;
  Tensor tensor MR_GUARDED_BY(mu);

  // The tensor as it is now (shares the buffer).
  Tensor read() {
    MutexLock lock(mu);
    return tensor;
  }
};

// What travels along an edge: a tensor, a reference to a variable, or the news that the branch was
// not taken.
struct Value {
  enum class State : uint8_t { kEmpty, kTensor, kRef, kDead };

  State state = State::kEmpty;
  Tensor tensor;      // kTensor
  Ref<RefCell> cell;  // kRef

  static Value of(Tensor t) { return {State::kTensor, std::move(t), nullptr}; }
  bool dead() const { return state == State::kDead; }
  bool empty() const { return state == State::kEmpty; }
  bool is_ref() const { return state == State::kRef; }
  void set_dead() {
    clear();
    state = State::kDead;
  }
  void clear() {
    if (state == State::kTensor) {
      tensor.reset();
    } else if (state == State::kRef) {
      cell = nullptr;
    }
    state = State::kEmpty;
  }
};

}  // namespace millrace
