#include "millrace/device/cpu/cpu_device.h"

#include <unistd.h>

#include <random>

#include "millrace/kernel/resource_manager.h"

namespace millrace {
namespace {

class CpuDevice final : public Device {
 public:
  CpuDevice(Info info, Ref<ResourceManager> resources)
      : Device(std::move(info), std::move(resources)) {}

  Allocator& allocator() override { return cpu_allocator(); }
  Allocator& host_allocator() override { return cpu_allocator(); }
  void copy_to_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) override {
    done(from);
  }
  void copy_from_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) override {
    done(from);
  }
};

int64_t physical_memory() {
  int64_t pages = sysconf(_SC_PHYS_PAGES);
  int64_t page_size = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && page_size > 0 ? pages * page_size : 0;
}

}  // namespace

uint64_t random_incarnation() {
  std::random_device random;
  uint64_t value = 0;
  while (value == 0) value = (uint64_t{random()} << 32) | random();
  return value;
}

Result<Ref<Device>> make_cpu_device(const DeviceName& name, Ref<ResourceManager> resources,
                                    uint64_t incarnation) {
  Device::Info info;
  info.name = name;
  info.kind = DeviceKind::kCpu;
  if (!info.name.type) info.name.type = std::string(device_type(info.kind));
  if (!info.name.id) info.name.id = 0;
  if (!info.name.complete() || *info.name.type != device_type(info.kind)) {
    return invalid_argument("expected the name of a CPU device with job, replica and task, got \"",
                            name.to_string(), "\"");
  }
  info.memory_limit = physical_memory();
  info.incarnation = incarnation != 0 ? incarnation : random_incarnation();
  info.description = "host processor";
  if (!resources) resources = make_ref<ResourceManager>();
  return Ref<Device>(make_ref<CpuDevice>(std::move(info), std::move(resources)));
}

Result<Ref<Device>> make_cpu_device_like(const Device& device) {
  if (device.kind() != DeviceKind::kCpu) {
    return invalid_argument("expected a CPU, got ", device.name());
  }
  return Ref<Device>(make_ref<CpuDevice>(device.info(), make_ref<ResourceManager>()));
}

Result<std::vector<Ref<Device>>> make_cpu_devices(const DeviceName& task, int count) {
  if (count < 1 || count > 1024) {
    return invalid_argument("the number of CPU devices must be 1 to 1024, got ", count);
  }
  std::vector<Ref<Device>> devices;
  for (int id = 0; id < count; ++id) {
    DeviceName name = task;
    name.type.reset();
    name.id = id;
    MR_TRY_ASSIGN(Ref<Device> device, make_cpu_device(name));
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace millrace
