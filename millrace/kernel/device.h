#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "millrace/base/function.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/kernel/device_name.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

class Event;
class FileAccess;
class ResourceManager;
class Stream;

// What kind of kernels a device runs.
enum class DeviceKind : uint8_t {
  kCpu,
  kCuda,
  kNull,
  kSimulated,
  kAny,  // of a kernel, never of a device: it touches no elements, so it serves every kind
};
// "CPU", "GPU", "NULL", "SIM": the type in device names.
std::string_view device_type(DeviceKind kind);

// Something that runs kernels and owns memory and state. See docs/devices.md for how a device whose
// kernels only enqueue plugs in. Thread-safe.
class Device : public RefCounted {
 public:
  struct Info {
    DeviceName name;  // complete
    DeviceKind kind = DeviceKind::kCpu;
    // The host cannot touch the memory of its kernels, nor they the host's: what one made and the
    // other reads is copied.
    bool own_memory = false;
    int64_t memory_limit = 0;
    uint64_t incarnation = 0;  // random, not zero; another after a restart
    std::string description;
  };

  const Info& info() const { return info_; }
  const std::string& name() const { return full_name_; }
  DeviceKind kind() const { return info_.kind; }

  // For tensors that kernels of this device read and write.
  virtual Allocator& allocator() = 0;
  // For tensors in host memory that this device's copy engine reads or writes.
  virtual Allocator& host_allocator() = 0;

  // The order in which kernels run, for devices whose kernels only enqueue; null when a kernel is
  // done when compute() returns.
  virtual Stream* stream() { return nullptr; }

  // Copies what this device's memory holds once all work enqueued before is done, and calls `done`
  // when the host may read the elements. On a device that shares the host's memory: done at once,
  // sharing the buffer.
  virtual void copy_to_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) = 0;
  // The other way: `done` is called, perhaps at once, when work enqueued from then on may read the
  // elements. The memory of `from` is read until then or, on a device with a stream, until the
  // stream is there.
  virtual void copy_from_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) = 0;
  // `buffer`, of allocator(), is used by work of another stream up to `event`: its memory is not
  // given out again before. See device/stream_allocator.h.
  virtual void keep_until(const Buffer& /*buffer*/, Ref<Event> /*event*/) {}
  // Returns when all work enqueued so far is done, with its first error.
  virtual Status synchronize() { return ok_status(); }

  // Variables, queues and other lasting state on this device.
  ResourceManager& resources() { return *resources_; }

  // The files that kernels of this device may reach: all, unless its owner narrows it before the
  // first of them runs.
  const FileAccess& files() const { return *files_; }
  void set_files(Ref<FileAccess> files);

 protected:
  Device(Info info, Ref<ResourceManager> resources);
  ~Device() override;

 private:
  Info info_;
  std::string full_name_;
  Ref<ResourceManager> resources_;
  Ref<FileAccess> files_;
};

// For callers that may block: the same copies, with the wait for `done`.
Result<Tensor> copy_to_host(Device& device, const Tensor& from);
Result<Tensor> copy_from_host(Device& device, const Tensor& from);

// Work in order on a device that runs asynchronously. An Event marks a place in it. An error that
// they report is of the device, and lasts; what goes wrong in the work of one step is reported to
// that with Step::fail().
class Event : public RefCounted {
 public:
  // Blocks the host until the work before the event is done.
  virtual Status wait() = 0;
  virtual bool done() = 0;
};
class Stream {
 public:
  virtual ~Stream() = default;
  // Marks the work enqueued so far.
  virtual Result<Ref<Event>> record() = 0;
  // Work enqueued later waits (on the device) for `event` of any stream.
  virtual Status wait_for(Event& event) = 0;
  // Calls `callback` on a host thread once the work enqueued so far is done.
  virtual Status then(UniqueFunction<void(Status)> callback) = 0;
};

}  // namespace millrace
