#pragma once

#include <vector>

#include "millrace/kernel/device.h"

namespace millrace {

// A device whose kernels run on the host's threads and are done when compute() returns. Its memory
// is the host's, so copies to and from the host share the buffer.
//
// `name` gives job, replica and task; type CPU and id 0 are filled in where absent.
// INVALID_ARGUMENT when the name is not that of a CPU device of a task. `resources` null: a manager
// of its own. `incarnation` 0: a random one.
Result<Ref<Device>> make_cpu_device(const DeviceName& name,
                                    Ref<ResourceManager> resources = nullptr,
                                    uint64_t incarnation = 0);

// `count` devices /device:CPU:0, 1, ... of one task: the same processor under several names, each
// with resources and an incarnation of its own, as if they were apart. At least one, at most 1024.
Result<std::vector<Ref<Device>>> make_cpu_devices(const DeviceName& task, int count);

// A device that others take for `device`, a CPU: the same in all but its resources, which are its
// own, and its files, which are all. INVALID_ARGUMENT for other kinds.
Result<Ref<Device>> make_cpu_device_like(const Device& device);

// Random and not zero: tells a restarted device from the one before.
uint64_t random_incarnation();

}  // namespace millrace
