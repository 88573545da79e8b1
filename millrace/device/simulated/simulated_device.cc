#include "millrace/device/simulated/simulated_device.h"

#include <utility>

#include "millrace/device/cpu/cpu_device.h"
#include "millrace/kernel/resource_manager.h"

namespace millrace {
namespace {

// Host memory in the role of a device's.
class SimulatedMemory final : public Allocator {
 public:
  const char* name() const override { return "simulated"; }
  MemorySpace space() const override { return MemorySpace::kDevice; }
  void* allocate(size_t bytes) override { return cpu_allocator().allocate(bytes); }
  void deallocate(void* data, size_t bytes) override { cpu_allocator().deallocate(data, bytes); }
  AllocatorStats stats() const override { return {}; }
  void reset_peak() override {}
};

// The device as the CPU's kernels see it: with its name and resources, in memory of the host.
class HostSide final : public Device {
 public:
  HostSide(Info info, Ref<ResourceManager> resources)
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

// How elements are stored, and read back: any change will do that is its own inverse.
void convert(const void* from, void* to, size_t bytes) {
  constexpr unsigned char kMask = 0xa5;
  const auto* source = static_cast<const unsigned char*>(from);
  auto* target = static_cast<unsigned char*>(to);
  for (size_t i = 0; i < bytes; ++i) target[i] = source[i] ^ kMask;
}

bool in_device_memory(const Tensor& tensor) {
  return tensor.buffer() && tensor.buffer()->space() == MemorySpace::kDevice;
}

}  // namespace

SimulatedDevice::SimulatedDevice(const Info& device, const Ref<ResourceManager>& resources,
                                 const KernelRegistry& kernels)
    : Device(device, resources),
      host_(make_ref<HostSide>(device, resources)),
      kernels_(kernels),
      memory_(std::make_unique<SimulatedMemory>()),
      allocator_(std::make_unique<StreamAllocator>(*memory_, main_)) {}

SimulatedDevice::~SimulatedDevice() {
  static_cast<void>(synchronize());
  resources().clear();  // what it holds is in this device's memory
}

Result<Tensor> SimulatedDevice::read(const Tensor& from) {
  MR_TRY_ASSIGN(Tensor to, Tensor::allocate(from.dtype(), from.shape()));
  convert(from.raw(), to.mutable_raw(), from.bytes());
  return to;
}

void SimulatedDevice::write(const Tensor& from, Tensor& to) {
  convert(from.raw(), to.mutable_raw(), from.bytes());
}

void SimulatedDevice::copy_to_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) {
  if (!in_device_memory(from)) return done(from);
  Result<Tensor> to = Tensor::allocate(from.dtype(), from.shape(), host_allocator());
  if (!to.ok()) return done(to.status());
  Result<Ref<Event>> before = main_.record();
  if (!before.ok()) return done(before.status());
  static_cast<void>(copies_.wait_for(**before));
  copies_.enqueue([source = from.raw(), target = to->mutable_raw(), bytes = to->bytes()] {
    convert(source, target, bytes);
  });
  // The buffer may be freed from now on, and is once `done` is called: its memory stays.
  if (Result<Ref<Event>> copied = copies_.record(); copied.ok()) {
    keep_until(*from.buffer(), std::move(*copied));
  }
  copies_.enqueue([this, to = std::move(*to), done = std::move(done)]() mutable {
    if (Status lost = main_.status(); !lost.ok()) return done(std::move(lost));
    done(std::move(to));
  });
}

void SimulatedDevice::copy_from_host(const Tensor& from,
                                     UniqueFunction<void(Result<Tensor>)> done) {
  if (in_device_memory(from) || !is_plain(from.dtype())) return done(from);
  Result<Tensor> to = Tensor::allocate(from.dtype(), from.shape(), allocator());
  if (!to.ok()) return done(to.status());
  main_.enqueue([from, target = to->mutable_raw()] { convert(from.raw(), target, from.bytes()); });
  done(std::move(to));
}

void SimulatedDevice::keep_until(const Buffer& buffer, Ref<Event> event) {
  allocator_->keep_until(buffer.data(), std::move(event));
}

Status SimulatedDevice::synchronize() {
  for (SimulatedStream* stream : {&main_, &copies_}) {
    MR_TRY_ASSIGN(Ref<Event> end, stream->record());
    MR_TRY(end->wait());
  }
  return ok_status();
}

std::vector<std::string> SimulatedDevice::log() const {
  MutexLock lock(mu_);
  return log_;
}

void SimulatedDevice::clear_log() {
  MutexLock lock(mu_);
  log_.clear();
}

void SimulatedDevice::called(const std::string& node) {
  MutexLock lock(mu_);
  log_.push_back(node);
}

Result<Ref<SimulatedDevice>> make_simulated_device(const DeviceName& name,
                                                   const KernelRegistry& kernels) {
  Device::Info info;
  info.name = name;
  info.kind = DeviceKind::kSimulated;
  if (!info.name.type) info.name.type = std::string(device_type(info.kind));
  if (!info.name.id) info.name.id = 0;
  if (!info.name.complete() || *info.name.type != device_type(info.kind)) {
    return invalid_argument("expected the name of a simulated device with job, replica and task, ",
                            "got \"", name.to_string(), "\"");
  }
  info.own_memory = true;
  info.incarnation = random_incarnation();
  info.description = "simulated accelerator";
  return make_ref<SimulatedDevice>(info, make_ref<ResourceManager>(), kernels);
}

}  // namespace millrace
