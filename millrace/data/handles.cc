#include "millrace/data/handles.h"

#include "proto/resource_handle.pb.h"

namespace millrace::data {

Tensor make_handle(const KernelContext& ctx, std::string_view container, std::string_view name,
                   std::string_view type) {
  return Tensor::scalar(ResourceHandle{.device = ctx.device().name(),
                                       .container = std::string(container),
                                       .name = std::string(name),
                                       .type_name = std::string(type)});
}

Result<ResourceHandle> handle_input(const KernelContext& ctx, int i, std::string_view type) {
  const Tensor& tensor = ctx.input(i);
  if (tensor.dtype() != DType::kResource || tensor.num_elements() != 1) {
    return invalid_argument("input ", i, " must be one resource handle, got ", tensor.dtype(), " ",
                            tensor.shape());
  }
  const ResourceHandle& handle = tensor.item<ResourceHandle>();
  if (handle.type_name != type) {
    return invalid_argument("input ", i, " must be the handle of an ", type, ", got that of a ",
                            handle.type_name.empty() ? "nothing" : handle.type_name, " named '",
                            handle.name, "'");
  }
  if (handle.device != ctx.device().name()) {
    const Result<DeviceName> device = DeviceName::parse(handle.device);
    if (!device.ok() || device->to_string() != ctx.device().name()) {
      return invalid_argument("resource ", handle.name, " is on device '", handle.device,
                              "', this op runs on ", ctx.device().name());
    }
  }
  return handle;
}

std::string handle_to_text(const ResourceHandle& handle) {
  tensorflow::ResourceHandleProto message;
  message.set_device(handle.device);
  message.set_container(handle.container);
  message.set_name(handle.name);
  message.set_maybe_type_name(handle.type_name);
  return message.SerializeAsString();
}

Result<ResourceHandle> handle_from_text(std::string_view text) {
  tensorflow::ResourceHandleProto message;
  if (text.size() > INT32_MAX ||
      !message.ParseFromArray(text.data(), static_cast<int>(text.size()))) {
    return invalid_argument("the text of ", text.size(), " bytes is no handle of an iterator");
  }
  return ResourceHandle{.device = message.device(),
                        .container = message.container(),
                        .name = message.name(),
                        .type_name = message.maybe_type_name()};
}

}  // namespace millrace::data
