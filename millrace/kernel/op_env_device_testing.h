#pragma once

#include "millrace/kernel/device.h"

namespace millrace {

// The device of every OpEnv (kernel_testing.h) that is made from now on; null: a host device of its
// own. Where it has memory of its own, inputs go there for the kernel, and inputs and outputs are
// in host memory for the test.
void set_op_env_device(Ref<Device> (*make)());

}  // namespace millrace
