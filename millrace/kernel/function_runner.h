#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "millrace/base/function.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/graph/attr_value.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

class Step;

// Runs functions of a graph's library for kernels that take a function: datasets, calls, eager
// code. Implemented by runtime/. Thread-safe.
class FunctionRunner : public RefCounted {
 public:
  using Handle = uint64_t;
  using Done = UniqueFunction<void(Result<std::vector<Tensor>>)>;

  // Compiles the function for these attribute values, once: the same call gives the same handle.
  // NOT_FOUND for an unknown name. State inside, such as random counters, belongs to the handle.
  virtual Result<Handle> instantiate(std::string_view function, const AttrMap& attrs) = 0;
  // Runs it as a step of its own, which falls with `caller` and has its cap on threads, its
  // deadline and its trace. `done` is called once, perhaps before run returns. Never waits: what
  // does not end on this thread goes on in the pool, so a pool of one thread is enough, however
  // deep functions call each other. A kernel that calls this is asynchronous, or runs on a thread
  // that may block.
  virtual void run(Handle handle, std::vector<Tensor> args, Step& caller, Done done) = 0;
};

}  // namespace millrace
