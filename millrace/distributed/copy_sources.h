#pragma once

#include "millrace/runtime/device_set.h"
#include "millrace/runtime/subgraph.h"

namespace millrace {

// Puts a copy of every feed (_Arg), and of every small constant, on each task that reads it, so
// that no task has to ask another for what is known before the step begins. `graph` is placed on
// `devices`. Sources that wait for something, and readers on devices with memory of their own, are
// left as they are; sources that nobody reads any more are erased.
void copy_sources(Subgraph& graph, const DeviceSet& devices);

}  // namespace millrace
