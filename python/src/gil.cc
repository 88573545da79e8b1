#include "python/src/gil.h"

#include <cxxabi.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <utility>

namespace millrace::python {

namespace {

// Calls `take`, which takes the lock. The thread does not come back once Python gives it up.
template <class Take>
void take_or_stay(const Take& take) {
  try {
    take();
  } catch (abi::__forced_unwind&) {
    for (;;) pause();
  }
}

// States of Python whose threads have ended. Their threads could not drop them: that takes the
// lock, and who waits for a thread to end may have it.
struct Left {
  PyThreadState* state;
  Left* next;
};
std::atomic<Left*> left_states{nullptr};

void drop_left_states() {
  if (left_states.load(std::memory_order_relaxed) == nullptr) [[likely]]
    return;
  for (Left* left = left_states.exchange(nullptr, std::memory_order_acquire); left != nullptr;) {
    PyThreadState_Clear(left->state);
    PyThreadState_Delete(left->state);
    delete std::exchange(left, left->next);
  }
}

// The state of Python of a thread that is not Python's, from the first time it has the lock to its
// end: to make one for each time would take longer than most calls.
class KeptState {
 public:
  // With the lock.
  void keep() {
    // In a child made by fork Python itself drops all states but that of the thread which forked.
    static const int registered = pthread_atfork(nullptr, nullptr, [] { left_states = nullptr; });
    if (registered != 0) return;
    PyGILState_Ensure();  // so that no Release is the last
    state_ = PyThreadState_Get();
  }
  ~KeptState() {
    if (state_ == nullptr) return;
    auto* left = new Left{state_, left_states.load(std::memory_order_relaxed)};
    while (!left_states.compare_exchange_weak(left->next, left, std::memory_order_release)) {
    }
  }

 private:
  PyThreadState* state_ = nullptr;
};
thread_local KeptState kept_state;

}  // namespace

bool interpreter_ends() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsFinalizing() || !Py_IsInitialized();
#else
  return _Py_IsFinalizing() || !Py_IsInitialized();
#endif
}

WithoutGil::~WithoutGil() {
  take_or_stay([this] { PyEval_RestoreThread(state_); });
}

WithGil::WithGil() {
  const bool first = PyGILState_GetThisThreadState() == nullptr;
  take_or_stay([this] { state_ = PyGILState_Ensure(); });
  if (first) kept_state.keep();
  drop_left_states();
}

}  // namespace millrace::python
