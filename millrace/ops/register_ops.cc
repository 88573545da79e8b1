#include "millrace/ops/register_ops.h"

#include "millrace/kernel/registry.h"
#include "millrace/ops/array/register.h"
#include "millrace/ops/control/register.h"
#include "millrace/ops/image/register.h"
#include "millrace/ops/linalg/register.h"
#include "millrace/ops/math/register.h"
#include "millrace/ops/nn/register.h"
#include "millrace/ops/queue/register.h"
#include "millrace/ops/random/register.h"
#include "millrace/ops/reduce/register.h"
#include "millrace/ops/sparse/register.h"
#include "millrace/ops/state/register.h"
#include "millrace/ops/strings/register.h"
#include "millrace/ops/tensor_array/register.h"
#include "millrace/ops/tensor_list/register.h"
#include "millrace/ops/training/register.h"

namespace millrace {

void register_all_ops(Registry& registry) {
  register_array_ops(registry);
  register_control_ops(registry);
  register_image_ops(registry);
  register_linalg_ops(registry);
  register_math_ops(registry);
  register_nn_ops(registry);
  register_queue_ops(registry);
  register_random_ops(registry);
  register_reduce_ops(registry);
  register_sparse_ops(registry);
  register_state_ops(registry);
  register_string_ops(registry);
  register_tensor_array_ops(registry);
  register_tensor_list_ops(registry);
  register_training_ops(registry);
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
