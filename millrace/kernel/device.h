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

class ResourceManager;
class Stream;

// What kind of kernels a device runs.
enum class DeviceKind : uint8_t { kCpu, kCuda, kNull };
// "CPU", "GPU", "NULL": the type in device names.
std::string_view device_type(DeviceKind kind);

// Something that runs kernels and owns memory and state. See docs/devices.md for how a device whose
// kernels only enqueue plugs in. Thread-safe.
class Device : public RefCounted {
 public:
  struct Info {
    DeviceName name;  // complete
    DeviceKind kind = DeviceKind::kCpu;
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

  // Copies between this device's memory and the host's, after all work enqueued before, and calls
  // `done` when the elements may be read. On a device that shares the host's memory: done at once,
  // sharing the buffer.
  virtual void copy_to_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) = 0;
  virtual void copy_from_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) = 0;
  // Returns when all work enqueued so far is done, with its first error.
  virtual Status synchronize() { return ok_status(); }

  // Variables, queues and other lasting state on this device.
  ResourceManager& resources() { return *resources_; }

 protected:
  Device(Info info, Ref<ResourceManager> resources);
  ~Device() override;

 private:
  Info info_;
  std::string full_name_;
  Ref<ResourceManager> resources_;
};

// Work in order on a device that runs asynchronously. An Event marks a place in it.
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
