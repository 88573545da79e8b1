#include "millrace/ops/register_ops.h"

#include "millrace/kernel/registry.h"

namespace millrace {

Status register_ops() {
  static const Status* status = [] {
    Registry registry(OpRegistry::global(), KernelRegistry::global());
    register_all_ops(registry);
    return new Status(registry.status());
  }();
  return *status;
}

}  // namespace millrace
