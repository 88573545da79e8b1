#include "millrace/device/cpu/cpu_device.h"
#include "millrace/device/gpu_library.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/runtime/local_function_runner.h"
#include "millrace/runtime/plan_set.h"
#include "millrace/session/session_backend.h"

namespace millrace {
namespace {

class LocalBackend : public SessionBackend {
 public:
  LocalBackend(std::vector<Ref<Device>> devices, const SessionOptions& options, bool owns_devices)
      : devices_(std::move(devices)),
        kernel_label_(options.kernel_label),
        rights_(options.rights),
        record_runs_(options.record_runs),
        owns_devices_(owns_devices) {
    std::vector<Device::Info> infos;
    for (const Ref<Device>& d : devices_) infos.push_back(d->info());
    set_ = DeviceSet(std::move(infos), 0);
  }

  // State may hold what holds the device: iterators, what runs their functions.
  ~LocalBackend() override {
    if (!owns_devices_) return;
    for (const Ref<Device>& device : devices_) device->resources().clear();
  }

  const DeviceSet& devices() const override { return set_; }
  Device& host_device() override { return *devices_[0]; }

  Result<Ref<Executable>> prepare(const Subgraph& graph, const Signature&,
                                  const std::string& session) override {
    CompileOptions options;
    options.session_prefix = session;
    options.kernel_label = kernel_label_;
    options.rights = rights_;
    options.record_runs = record_runs_;
    MR_TRY_ASSIGN(Ref<PlanSet> plans, PlanSet::build(graph, devices_, set_, options));
    return Ref<Executable>(std::move(plans));
  }

  // What other sessions do to variables of shared devices is not known here.
  bool prepares_again() const override { return owns_devices_; }

  Ref<FunctionRunner> make_function_runner(const Graph& graph,
                                           const std::string& session) override {
    return millrace::make_function_runner(graph.shared_functions(), graph.registry(), devices_[0],
                                          {.session_prefix = session, .rights = rights_});
  }

  void close(const std::string& session) override {
    for (const Ref<Device>& device : devices_) device->resources().clear_session(session);
  }

  Status reset_where(std::span<const std::string> containers,
                     FunctionRef<bool(const DeviceName&)> which) override {
    for (const Ref<Device>& device : devices_) {
      if (!which(device->info().name)) continue;
      ResourceManager& resources = device->resources();
      if (containers.empty()) resources.clear_container(ResourceManager::kDefaultContainer);
      for (const std::string& container : containers) {
        const bool by_job = container == device->info().name.job;
        resources.clear_container(by_job ? ResourceManager::kDefaultContainer : container);
      }
    }
    return ok_status();
  }

 private:
  std::vector<Ref<Device>> devices_;
  std::string kernel_label_;
  GraphRights rights_;
  bool record_runs_;
  bool owns_devices_;
  DeviceSet set_;
};

// True when some filter agrees with the device: "/job:worker" keeps all of that job's.
Result<bool> passes(const DeviceName& device, const std::vector<std::string>& filters) {
  bool any = filters.empty();
  for (const std::string& filter : filters) {
    MR_TRY_ASSIGN(DeviceName pattern, DeviceName::parse(filter));
    any |= device.matches(pattern);
  }
  return any;
}

}  // namespace

Result<Ref<SessionBackend>> make_local_backend(const SessionOptions& options) {
  if (options.cpu_devices < 1 || options.cpu_devices > 1024) {
    return invalid_argument("expected 1 to 1024 CPU devices, got ", options.cpu_devices);
  }
  MR_TRY_ASSIGN(DeviceName task, DeviceName::parse("/job:localhost/replica:0/task:0"));
  MR_TRY_ASSIGN(std::vector<Ref<Device>> all, make_cpu_devices(task, options.cpu_devices));
  MR_TRY_ASSIGN(const std::vector<Ref<Device>> gpus, make_gpu_devices(task, options.gpu));
  all.insert(all.end(), gpus.begin(), gpus.end());
  std::vector<Ref<Device>> devices;
  for (const Ref<Device>& device : all) {
    MR_TRY_ASSIGN(bool kept, passes(device->info().name, options.device_filters));
    if (!kept) continue;
    if (options.files) device->set_files(options.files);
    devices.push_back(device);
  }
  // Feeds come from a CPU, and constants are folded there.
  if (devices.empty() || devices[0]->kind() != DeviceKind::kCpu) {
    return invalid_argument("no CPU of this process matches the device filters ",
                            str_join(options.device_filters, ", "));
  }
  return Ref<SessionBackend>(make_ref<LocalBackend>(std::move(devices), options, true));
}

Ref<SessionBackend> make_local_backend(std::vector<Ref<Device>> devices,
                                       const SessionOptions& options) {
  return make_ref<LocalBackend>(std::move(devices), options, options.isolate_state);
}

}  // namespace millrace
