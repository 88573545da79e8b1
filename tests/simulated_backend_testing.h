#pragma once

#include "millrace/device/simulated/simulated_device.h"
#include "millrace/session/session_options.h"

namespace millrace {

// Sessions with these options have a CPU and a simulated device, which nodes are placed on unless
// they ask for another.
SessionOptions on_simulated_device();

// The device of the session that was created last.
Ref<SimulatedDevice> last_simulated_device();

}  // namespace millrace
