#include "millrace/ops/device_engine.h"

#include <atomic>

namespace millrace {
namespace {

std::atomic<DeviceEngine*> engine{nullptr};

}  // namespace

DeviceEngine* device_engine(const KernelContext& ctx) {
  if (ctx.device().kind() != DeviceKind::kCuda) [[likely]]
    return nullptr;
  DeviceEngine* const found = engine.load(std::memory_order_acquire);
  MR_CHECK(found != nullptr);
  return found;
}

void set_device_engine(DeviceEngine* made) { engine.store(made, std::memory_order_release); }

Result<Tensor> clone_on_device(const KernelContext& ctx, const Tensor& tensor) {
  DeviceEngine* const device = device_engine(ctx);
  if (device == nullptr || !is_plain(tensor.dtype())) return tensor.clone(ctx.device().allocator());
  MR_TRY_ASSIGN(Tensor copy,
                Tensor::allocate(tensor.dtype(), tensor.shape(), ctx.device().allocator()));
  MR_TRY(device->copy(ctx, tensor.raw(), copy.mutable_raw(), tensor.bytes()));
  return copy;
}

}  // namespace millrace
