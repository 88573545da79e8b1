#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "millrace/base/cancellation.h"
#include "millrace/base/function.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/graph/attr_value.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Runs functions of the graph's library for kernels that take a function: datasets, calls, eager
// code. Implemented by runtime/. Thread-safe.
class FunctionRunner : public RefCounted {
 public:
  using Handle = uint64_t;
  using Done = UniqueFunction<void(Result<std::vector<Tensor>>)>;

  // Compiles the function for these attribute values, once. NOT_FOUND for an unknown name.
  virtual Result<Handle> instantiate(std::string_view function, const AttrMap& attrs) = 0;
  // Runs it; `done` is called once, perhaps before run returns. `cancel` (may be null) stops it.
  virtual void run(Handle handle, std::vector<Tensor> args, CancellationToken* cancel,
                   Done done) = 0;
};

}  // namespace millrace
