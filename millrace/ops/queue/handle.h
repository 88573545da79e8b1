#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/kernel/kernel.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/kernel/value.h"
#include "millrace/tensor/resource_handle.h"

// How ops name a resource to each other. There are two forms: a tensor with a ResourceHandle, and
// in older ops a reference to a string tensor [container, name].

namespace millrace {

// What an input says. The views point into `tensor`.
struct HandleName {
  Tensor tensor;
  std::string_view container;
  std::string_view name;
};

// Reads input i, in either form; INVALID_ARGUMENT when it names no resource of type `type` that
// this device could have.
Result<HandleName> handle_name_input(const KernelContext& ctx, int i, std::string_view type);

// The resource that input i names; NOT_FOUND when it is gone.
template <class T>
Result<Ref<T>> resource_input(const KernelContext& ctx, int i) {
  MR_TRY_ASSIGN(HandleName handle, handle_name_input(ctx, i, T::kTypeName));
  return ctx.resources().lookup<T>(handle.container, handle.name);
}

// The older form.
Ref<RefCell> make_handle_cell(std::string_view container, std::string_view name);
// The newer form; `contents` is for shape inference.
Tensor make_handle(const KernelContext& ctx, std::string_view container, std::string_view name,
                   std::string_view type, std::vector<ResourceHandle::DTypeAndShape> contents);

// A name that no other resource of the process has, for one that a node makes on each of its runs:
// iterations of a loop and calls of a function share the step's container.
std::string unique_step_name(std::string_view base);

}  // namespace millrace
