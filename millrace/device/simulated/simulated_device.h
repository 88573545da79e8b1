#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/device/simulated/simulated_stream.h"
#include "millrace/device/stream_allocator.h"
#include "millrace/kernel/device.h"
#include "millrace/kernel/registry.h"

namespace millrace {

// A device that behaves as a GPU does and computes what the CPU computes, so that all that stands
// around kernels can be tested without hardware. Kernels only enqueue; the work, a kernel of the
// CPU, runs later on the thread of a stream. Memory is the device's own: elements are stored
// changed, so that only the device's copies give what they mean, and freed memory is used again
// while work on it is still enqueued. Copies to the host run on a second stream.
//
// It takes any op that has a kernel for CPUs (see register_simulated_kernels). Thread-safe.
class SimulatedDevice final : public Device {
 public:
  SimulatedDevice(const Info& device, const Ref<ResourceManager>& resources,
                  const KernelRegistry& kernels);

  Allocator& allocator() override { return *allocator_; }
  Allocator& host_allocator() override { return cpu_allocator(); }
  SimulatedStream* stream() override { return &main_; }
  void copy_to_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) override;
  void copy_from_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) override;
  void keep_until(const Buffer& buffer, Ref<Event> event) override;
  Status synchronize() override;

  // For tests: the nodes in the order in which their kernels were called.
  std::vector<std::string> log() const;
  void clear_log();

  // For its kernels. This device as the CPU's kernels see it, in host memory, and where they are.
  Device& host() { return *host_; }
  const KernelRegistry& kernels() const { return kernels_; }
  void called(const std::string& node);
  // In order of the stream: what `from`, in device memory, holds, as host memory.
  static Result<Tensor> read(const Tensor& from);
  // The other way; both are of one type and shape.
  static void write(const Tensor& from, Tensor& to);

 protected:
  ~SimulatedDevice() override;

 private:
  const Ref<Device> host_;
  const KernelRegistry& kernels_;
  std::unique_ptr<Allocator> memory_;
  SimulatedStream main_;
  SimulatedStream copies_;
  std::unique_ptr<StreamAllocator> allocator_;
  mutable Mutex mu_;
  std::vector<std::string> log_ MR_GUARDED_BY(mu_);
};

// `name` as for make_cpu_device, with type SIM. `kernels` has those of the CPU.
Result<Ref<SimulatedDevice>> make_simulated_device(
    const DeviceName& name, const KernelRegistry& kernels = KernelRegistry::global());

// Registers the kernel for all ops that have a kernel for CPUs and none that serves every device.
Status register_simulated_kernels(KernelRegistry& registry);

}  // namespace millrace
