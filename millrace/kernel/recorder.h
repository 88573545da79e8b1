#pragma once

#include <memory>
#include <span>
#include <vector>

#include "millrace/base/function.h"
#include "millrace/kernel/device.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/kernel/step.h"
#include "millrace/kernel/value.h"

// Work of a run that a device recorded instead of doing it, and does again as a whole without
// calling kernels: docs/devices.md, "Recorded runs".

namespace millrace {

// State that outlives runs, as recorded work uses it: memory at an address. Made by the kernel that
// uses it.
class RecordedState {
 public:
  virtual ~RecordedState() = default;
  // The same for two uses of the same state. Locks are taken in its order.
  virtual const void* identity() const = 0;
  // Takes the state's lock, to use it as it was recorded. False, and no lock, where it is not there
  // any more, lies elsewhere, has another shape, or is written and somebody else sees it.
  virtual bool lock() = 0;
  virtual void unlock() = 0;
  bool written = false;
};

// Recorded work, done. One run at a time.
class Recording : public RefCounted {
 public:
  // Copies the feeds, enqueues all of the work, calls `enqueued`, and returns when it is done and
  // `fetches` are set, in the order in which they were added. What the work finds wrong is reported
  // to `step`.
  virtual Status run(Step& step, std::span<const Tensor* const> feeds, FunctionRef<void()> enqueued,
                     std::span<Tensor* const> fetches) = 0;
};

// The device as kernels see it while their work is recorded: what they enqueue is kept, what they
// allocate stays at its address for as long as the recording. By one thread.
class Recorder : public Device {
 public:
  // Memory that gets the next feed before the rest of the work.
  virtual Result<Tensor> add_feed(DType dtype, const Shape& shape) = 0;
  // What `from` holds now, in the order of the work, is the next fetch.
  virtual Status add_fetch(const Tensor& from) = 0;
  // Begins the call of a kernel, the next in their order: its number, from 0. Its work comes after
  // that of the calls `after`, of those that wrote what `inputs` name, and for inputs with a bit in
  // `changed`, which it may write, of all that use them; beside that of others.
  virtual Result<int> begin_call(std::span<const int> after, std::span<Value* const> inputs,
                                 uint64_t changed) = 0;
  // Ends it; it gave these outputs.
  virtual Status end_call(std::span<const Value> outputs) = 0;
  // Ends the recording, after which the recorder is of no more use.
  virtual Result<Ref<Recording>> end() = 0;

  // The kernel that is being called uses this state, and nothing else that lasts. A kernel of an op
  // with state that does not say so cannot be recorded.
  void uses(std::unique_ptr<RecordedState> state) {
    ++uses_;
    for (const std::unique_ptr<RecordedState>& known : states_) {
      if (known->identity() == state->identity()) return;
    }
    states_.push_back(std::move(state));
  }
  // It changes the state of that identity, which it uses.
  void changes(const void* identity) {
    for (const std::unique_ptr<RecordedState>& known : states_) {
      known->written |= known->identity() == identity;
    }
  }
  int64_t num_uses() const { return uses_; }
  std::vector<std::unique_ptr<RecordedState>> take_states() { return std::move(states_); }

 protected:
  Recorder(Info info, Ref<ResourceManager> resources)
      : Device(std::move(info), std::move(resources)) {}

 private:
  int64_t uses_ = 0;
  std::vector<std::unique_ptr<RecordedState>> states_;
};

// What a device that records derives from besides Device.
class RecordingDevice {
 public:
  virtual ~RecordingDevice() = default;
  // UNAVAILABLE where nothing is recorded now, but may be later.
  virtual Result<Ref<Recorder>> begin_recording() = 0;
};

// The recorder, where `device` is one.
inline Recorder* as_recorder(Device& device) {
  if (!device.info().own_memory) [[likely]]
    return nullptr;
  return dynamic_cast<Recorder*>(&device);
}

}  // namespace millrace
