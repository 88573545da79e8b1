// Tensors that stay in a session from one step to another, known by handles that are strings:
// "node;number;device".

#include <atomic>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/queue/batch.h"
#include "millrace/ops/queue/handle.h"

namespace millrace {
namespace {

class SessionTensor final : public Resource {
 public:
  static constexpr std::string_view kTypeName = "SessionTensor";

  explicit SessionTensor(Tensor tensor) : tensor_(std::move(tensor)) {}
  const Tensor& tensor() const { return tensor_; }
  std::string describe() const override {
    return str_cat("SessionTensor ", tensor_.dtype(), " ", tensor_.shape());
  }

 private:
  const Tensor tensor_;
};

// Where the tensor of a handle is. Other sessions cannot get at it.
std::string resource_name(const KernelContext& ctx, std::string_view handle) {
  return ResourceManager::session_name(ctx.node().session_prefix, handle);
}

Result<std::string> handle_input(const KernelContext& ctx) {
  MR_TRY(expect_rank(ctx, 0, 0));
  return ctx.scalar_input<std::string>(0);
}

Status scalar_handle(ShapeContext& c) { return c.with_rank(0, 0).status(); }

template <bool kResource>
Status keep_cpu(KernelContext& ctx) {
  static std::atomic<int64_t> next{0};
  const std::string handle = str_cat(
      ctx.node().name, ";", next.fetch_add(1, std::memory_order_relaxed), ";", ctx.device().name());
  const std::string name = resource_name(ctx, handle);
  MR_TRY_ASSIGN(Tensor value, own_memory(ctx.take_input(0).tensor));
  const ResourceHandle::DTypeAndShape content = {value.dtype(), value.shape()};
  MR_TRY(ctx.resources().create(ResourceManager::kDefaultContainer, name,
                                make_ref<SessionTensor>(std::move(value))));
  if constexpr (kResource) {
    ctx.set_output(0, make_handle(ctx, ResourceManager::kDefaultContainer, handle,
                                  SessionTensor::kTypeName, {content}));
  } else {
    ctx.set_output(0, Tensor::scalar(handle));
  }
  return ok_status();
}

Status read_cpu(KernelContext& ctx) {
  MR_TRY_ASSIGN(const std::string handle, handle_input(ctx));
  const Result<Ref<SessionTensor>> found = ctx.resources().lookup<SessionTensor>(
      ResourceManager::kDefaultContainer, resource_name(ctx, handle));
  if (!found.ok()) {
    return invalid_argument("The tensor with handle '", handle, "' is not in the session store.");
  }
  const Tensor& tensor = (*found)->tensor();
  if (tensor.dtype() != ctx.output_type(0)) {
    return invalid_argument("the tensor with handle '", handle, "' has type ", tensor.dtype(),
                            ", this op expects ", ctx.output_type(0));
  }
  ctx.set_output(0, tensor);
  return ok_status();
}

Status delete_cpu(KernelContext& ctx) {
  MR_TRY_ASSIGN(const std::string handle, handle_input(ctx));
  const Status removed = ctx.resources().remove<SessionTensor>(ResourceManager::kDefaultContainer,
                                                               resource_name(ctx, handle));
  if (removed.ok()) return removed;
  return invalid_argument("Failed to delete a tensor with handle '", handle,
                          "' in the session store.");
}

}  // namespace

void register_session_tensor(Registry& registry) {
  const OpTraits traits = {.stateful = true, .cannot_differentiate = true};
  const OpTraits keeps = {.stateful = true, .cannot_differentiate = true, .retains = 1};
  registry.add({.name = "GetSessionHandle",
                .doc = "Keeps a tensor in the session and gives its handle.",
                .inputs = {{"value", "T"}},
                .outputs = {{"handle", "string"}},
                .attrs = {{"T", "type"}},
                .traits = keeps,
                .shape = shape_rules::scalar});
  registry.kernel("GetSessionHandle", DeviceKind::kCpu, keep_cpu<false>);
  registry.add({.name = "GetSessionHandleV2",
                .doc = "Keeps a tensor in the session; the name of the resource is its handle.",
                .inputs = {{"value", "T"}},
                .outputs = {{"handle", "resource"}},
                .attrs = {{"T", "type"}},
                .traits = keeps,
                .shape = shape_rules::scalar});
  registry.kernel("GetSessionHandleV2", DeviceKind::kCpu, keep_cpu<true>);
  registry.add({.name = "GetSessionTensor",
                .doc = "The tensor that the session keeps under a handle.",
                .inputs = {{"handle", "string"}},
                .outputs = {{"value", "dtype"}},
                .attrs = {{"dtype", "type"}},
                .traits = traits,
                .shape = scalar_handle});
  registry.kernel("GetSessionTensor", DeviceKind::kCpu, read_cpu);
  registry.add({.name = "DeleteSessionTensor",
                .doc = "Lets the session keep a tensor no longer.",
                .inputs = {{"handle", "string"}},
                .traits = traits,
                .shape = scalar_handle});
  registry.kernel("DeleteSessionTensor", DeviceKind::kCpu, delete_cpu);
}

}  // namespace millrace
