#include "tests/simulated_backend_testing.h"

#include "millrace/base/mutex.h"
#include "millrace/device/cpu/cpu_device.h"
#include "millrace/session/session_backend.h"

namespace millrace {
namespace {

struct Last {
  Mutex mu;
  Ref<SimulatedDevice> device MR_GUARDED_BY(mu);
};

Last& last() {
  static Last* last = new Last;
  return *last;
}

Result<Ref<SessionBackend>> make_backend(const SessionOptions& options) {
  MR_TRY_ASSIGN(DeviceName task, DeviceName::parse("/job:localhost/replica:0/task:0"));
  MR_TRY_ASSIGN(std::vector<Ref<Device>> devices, make_cpu_devices(task, 1));
  MR_TRY_ASSIGN(Ref<SimulatedDevice> simulated, make_simulated_device(task));
  devices.push_back(simulated);
  MutexLock lock(last().mu);
  last().device = std::move(simulated);
  return make_local_backend(std::move(devices), options);
}

}  // namespace

SessionOptions on_simulated_device() {
  static const bool registered = [] {
    MR_CHECK_OK(register_simulated_kernels(KernelRegistry::global()));
    MR_CHECK_OK(register_session_backend("simulated", make_backend));
    return true;
  }();
  static_cast<void>(registered);
  SessionOptions options;
  options.target = "simulated://";
  return options;
}

Ref<SimulatedDevice> last_simulated_device() {
  MutexLock lock(last().mu);
  return last().device;
}

}  // namespace millrace
