#pragma once

#include <cstdint>
#include <string>

#include "millrace/base/cancellation.h"
#include "millrace/base/ref.h"

namespace millrace {

class Device;
class FunctionRunner;
class Rendezvous;
class ResourceManager;
class ThreadPool;
class TraceCollector;

// What all kernels of one run on one device share. Lives until the last of them is done.
struct StepContext {
  int64_t step_id = 0;
  Device* device = nullptr;
  ThreadPool* pool = nullptr;
  int max_threads = 1 << 20;  // the session's cap on threads inside a kernel
  Rendezvous* rendezvous = nullptr;
  CancellationToken* cancel = nullptr;
  // Resources that end with the step: TensorArrays, stacks. In this container of the device's
  // manager.
  const std::string* step_container = nullptr;
  // The container for nodes whose attribute is empty.
  const std::string* default_container = nullptr;
  FunctionRunner* functions = nullptr;
  TraceCollector* trace = nullptr;  // null: no tracing
  // Names the session among those that share a server's resource managers.
  const std::string* session_prefix = nullptr;
};

}  // namespace millrace
