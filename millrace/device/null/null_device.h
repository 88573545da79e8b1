#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/kernel/device.h"
#include "millrace/kernel/kernel.h"

namespace millrace {

class KernelRegistry;

// A device that computes nothing, for tests of what surrounds kernels: placement, order,
// asynchronous completion. It takes any op (see register_null_kernels). A kernel writes the node's
// name to the log and sets each output to an empty tensor of the declared type and shape [0], or,
// for a reference output, to a reference to such a tensor. Held back with hold(), kernels finish
// when the test says so, on the thread that says it. Thread-safe.
class NullDevice final : public Device {
 public:
  NullDevice(Info info, Ref<ResourceManager> resources);

  // The nodes in the order in which their kernels started.
  std::vector<std::string> log() const;
  void clear_log();

  // From now on kernels start but do not finish.
  void hold();
  // The nodes that started and are held, in that order.
  std::vector<std::string> held() const;
  // Waits until a kernel of `node` is held, at most ten seconds: false when there is none then.
  bool wait_held(std::string_view node);
  // Finishes the earliest held kernel of `node` with `status`; NOT_FOUND when there is none.
  Status finish(std::string_view node, Status status = ok_status());
  // Finishes all held kernels and those to come.
  void resume();

  Allocator& allocator() override { return cpu_allocator(); }
  Allocator& host_allocator() override { return cpu_allocator(); }
  void copy_to_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) override;
  void copy_from_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) override;

  // For the kernel: logs the node, and calls `done` or keeps it.
  void started(const std::string& node, AsyncKernel::Done done);

 protected:
  ~NullDevice() override;

 private:
  struct Held {
    std::string node;
    AsyncKernel::Done done;
  };

  mutable Mutex mu_;
  CondVar changed_;
  bool holding_ MR_GUARDED_BY(mu_) = false;
  std::vector<std::string> log_ MR_GUARDED_BY(mu_);
  std::vector<Held> held_ MR_GUARDED_BY(mu_);
};

// `name` as for make_cpu_device, with type NULL.
Result<Ref<NullDevice>> make_null_device(const DeviceName& name);

// Registers the kernel for all ops that have none of their own for DeviceKind::kNull.
Status register_null_kernels(KernelRegistry& registry);

}  // namespace millrace
