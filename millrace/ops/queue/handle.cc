#include "millrace/ops/queue/handle.h"

#include <atomic>

#include "millrace/ops/state/variable.h"

namespace millrace {

Result<HandleName> handle_name_input(const KernelContext& ctx, int i, std::string_view type) {
  HandleName out;
  if (!ctx.input_is_ref(i) && ctx.input(i).dtype() == DType::kResource) {
    MR_TRY_ASSIGN(const ResourceHandle* handle, handle_input(ctx, i));
    if (handle->type_name != type) {
      return invalid_argument("input ", i, " must be the handle of a ", type, ", got that of a ",
                              handle->type_name.empty() ? "nothing" : handle->type_name, " named '",
                              handle->name, "'");
    }
    out.tensor = ctx.input(i);
    out.container = container_or_default(handle->container);
    out.name = handle->name;
    return out;
  }
  out.tensor = ctx.input_is_ref(i) ? ctx.input_ref(i).read() : ctx.input(i);
  if (out.tensor.dtype() != DType::kString || out.tensor.num_elements() != 2) {
    return invalid_argument("input ", i, " must be the handle of a ", type,
                            ": two strings, container and name; got ", out.tensor.dtype(), " ",
                            out.tensor.shape());
  }
  out.container = out.tensor.data<std::string>()[0];
  out.name = out.tensor.data<std::string>()[1];
  return out;
}

Ref<RefCell> make_handle_cell(std::string_view container, std::string_view name) {
  Ref<RefCell> cell = make_ref<RefCell>();
  cell->name = std::string(name);
  MutexLock lock(cell->mu);
  cell->tensor = Tensor::vector<std::string>({std::string(container), std::string(name)});
  return cell;
}

Tensor make_handle(const KernelContext& ctx, std::string_view container, std::string_view name,
                   std::string_view type, std::vector<ResourceHandle::DTypeAndShape> contents) {
  return Tensor::scalar(ResourceHandle{.device = ctx.device().name(),
                                       .container = std::string(container),
                                       .name = std::string(name),
                                       .type_name = std::string(type),
                                       .contents = std::move(contents)});
}

std::string unique_step_name(std::string_view base) {
  static std::atomic<int64_t> next{0};
  return str_cat(base, "_", next.fetch_add(1, std::memory_order_relaxed));
}

}  // namespace millrace
