#include "millrace/ops/register_ops.h"

#include "millrace/kernel/registry.h"
#include "millrace/ops/array/register.h"
#include "millrace/ops/control/register.h"
#include "millrace/ops/linalg/register.h"
#include "millrace/ops/math/register.h"
#include "millrace/ops/nn/register.h"

namespace millrace {

void register_all_ops(Registry& registry) {
  register_array_ops(registry);
  register_control_ops(registry);
  register_linalg_ops(registry);
  register_math_ops(registry);
  register_nn_ops(registry);
}

Status register_ops() {
  static const Status* status = [] {
    Registry registry(OpRegistry::global(), KernelRegistry::global());
    register_all_ops(registry);
    return new Status(registry.status());
  }();
  return *status;
}

}  // namespace millrace
