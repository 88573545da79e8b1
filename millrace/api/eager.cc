#include "millrace/api/eager.h"

#include "millrace/device/cpu/cpu_device.h"
#include "millrace/ops/register_ops.h"
#include "millrace/runtime/local_function_runner.h"

namespace millrace::eager {

Result<EagerRuntime> make_eager_runtime(const SessionOptions& options) {
  MR_TRY(register_ops());
  if (options.cpu_devices < 1 || options.cpu_devices > 1024) {
    return invalid_argument("expected 1 to 1024 CPU devices, got ", options.cpu_devices);
  }
  MR_TRY_ASSIGN(const DeviceName task, DeviceName::parse("/job:localhost/replica:0/task:0"));
  EagerRuntime out;
  ContextOptions context;
  MR_TRY_ASSIGN(context.devices, make_cpu_devices(task, options.cpu_devices));
  MR_TRY_ASSIGN(context.own_state, make_cpu_device_like(*context.devices[0]));
  out.functions = make_ref<FunctionLibrary>();
  FunctionRunnerOptions runner;
  runner.session_prefix = "eager";
  context.functions = make_function_runner(out.functions, OpRegistry::global(), context.devices[0],
                                           std::move(runner));
  context.soft_placement = options.soft_placement;
  if (options.threads > 0) context.max_threads = options.threads;
  MR_TRY_ASSIGN(out.context, EagerContext::create(std::move(context)));
  return out;
}

}  // namespace millrace::eager
