#include "millrace/device/null/null_device.h"

#include <algorithm>

#include "millrace/device/cpu/cpu_device.h"
#include "millrace/kernel/registry.h"
#include "millrace/kernel/resource_manager.h"

namespace millrace {
namespace {

class NullKernel final : public AsyncKernel {
 public:
  explicit NullKernel(NullDevice& device) : device_(device) {}

  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    if (node.device == nullptr || node.device->kind() != DeviceKind::kNull) {
      return internal("a null kernel was asked for on another device");
    }
    return std::unique_ptr<Kernel>(
        std::make_unique<NullKernel>(static_cast<NullDevice&>(*node.device)));
  }

  void compute_async(KernelContext& ctx, Done done) const override {
    Status status = set_outputs(ctx);
    if (!status.ok()) return done(std::move(status));
    device_.started(ctx.node().name, std::move(done));
  }

 private:
  static Status set_outputs(KernelContext& ctx) {
    for (int i = 0; i < ctx.num_outputs(); ++i) {
      DType dtype = ctx.output_type(i);
      MR_TRY_ASSIGN(Tensor empty, Tensor::allocate(base_type(dtype), Shape{0}));
      if (!is_ref(dtype)) {
        ctx.set_output(i, std::move(empty));
        continue;
      }
      Ref<RefCell> cell = make_ref<RefCell>();
      {
        MutexLock lock(cell->mu);
        cell->tensor = std::move(empty);
      }
      ctx.set_output_ref(i, std::move(cell));
    }
    return ok_status();
  }

  NullDevice& device_;
};

}  // namespace

NullDevice::NullDevice(Info info, Ref<ResourceManager> resources)
    : Device(std::move(info), std::move(resources)) {}

NullDevice::~NullDevice() { resume(); }

std::vector<std::string> NullDevice::log() const {
  MutexLock lock(mu_);
  return log_;
}

void NullDevice::clear_log() {
  MutexLock lock(mu_);
  log_.clear();
}

void NullDevice::hold() {
  MutexLock lock(mu_);
  holding_ = true;
}

std::vector<std::string> NullDevice::held() const {
  MutexLock lock(mu_);
  std::vector<std::string> nodes;
  for (const Held& held : held_) nodes.push_back(held.node);
  return nodes;
}

bool NullDevice::wait_held(std::string_view node) {
  Deadline deadline = Deadline::after_millis(10'000);
  MutexLock lock(mu_);
  while (true) {
    for (const Held& held : held_) {
      if (held.node == node) return true;
    }
    if (!changed_.wait_until(mu_, deadline)) return false;
  }
}

Status NullDevice::finish(std::string_view node, Status status) {
  AsyncKernel::Done done;
  {
    MutexLock lock(mu_);
    auto it = std::find_if(held_.begin(), held_.end(),
                           [&](const Held& held) { return held.node == node; });
    if (it == held_.end()) return not_found("no kernel of node \"", node, "\" is held");
    done = std::move(it->done);
    held_.erase(it);
  }
  done(std::move(status));
  return ok_status();
}

void NullDevice::resume() {
  std::vector<Held> held;
  {
    MutexLock lock(mu_);
    holding_ = false;
    held.swap(held_);
  }
  for (Held& kernel : held) kernel.done(ok_status());
}

void NullDevice::copy_to_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) {
  done(from);
}

void NullDevice::copy_from_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) {
  done(from);
}

void NullDevice::started(const std::string& node, AsyncKernel::Done done) {
  {
    MutexLock lock(mu_);
    log_.push_back(node);
    if (holding_) {
      held_.push_back({node, std::move(done)});
      changed_.notify_all();
      return;
    }
  }
  done(ok_status());
}

Result<Ref<NullDevice>> make_null_device(const DeviceName& name) {
  Device::Info info;
  info.name = name;
  info.kind = DeviceKind::kNull;
  if (!info.name.type) info.name.type = std::string(device_type(info.kind));
  if (!info.name.id) info.name.id = 0;
  if (!info.name.complete() || *info.name.type != device_type(info.kind)) {
    return invalid_argument("expected the name of a NULL device with job, replica and task, got \"",
                            name.to_string(), "\"");
  }
  info.incarnation = random_incarnation();
  info.description = "computes nothing";
  return make_ref<NullDevice>(std::move(info), make_ref<ResourceManager>());
}

Status register_null_kernels(KernelRegistry& registry) {
  return registry.add({.op = "*", .device = DeviceKind::kNull, .factory = &NullKernel::make});
}

}  // namespace millrace
