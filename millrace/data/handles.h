#pragma once

#include <string>
#include <string_view>

#include "millrace/kernel/kernel.h"
#include "millrace/kernel/resource_manager.h"

// How the ops of iterators name them to each other.

namespace millrace::data {

// The handle of a resource of this device.
Tensor make_handle(const KernelContext& ctx, std::string_view container, std::string_view name,
                   std::string_view type);

// The handle in input i; INVALID_ARGUMENT unless it is one of this device, of a resource of `type`.
Result<ResourceHandle> handle_input(const KernelContext& ctx, int i, std::string_view type);

// A handle as a text that can be fed, and back; INVALID_ARGUMENT for one that is no handle.
std::string handle_to_text(const ResourceHandle& handle);
Result<ResourceHandle> handle_from_text(std::string_view text);

}  // namespace millrace::data
