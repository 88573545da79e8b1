#pragma once

#include <string>

#include "millrace/graph/function.h"
#include "millrace/kernel/device.h"
#include "millrace/kernel/function_runner.h"
#include "millrace/runtime/plan.h"

namespace millrace {

struct FunctionRunnerOptions {
  // Names the session among those that share the device.
  std::string session_prefix;
  const KernelRegistry* kernels = nullptr;  // null: the global one
  int optimizer_level = 1;
  // What the nodes of functions may reach.
  GraphRights rights = {};
};

// Runs functions of `functions`, those added later included, on one device of this process.
Ref<FunctionRunner> make_function_runner(Ref<FunctionLibrary> functions, const OpRegistry& registry,
                                         Ref<Device> device, FunctionRunnerOptions options);

}  // namespace millrace
