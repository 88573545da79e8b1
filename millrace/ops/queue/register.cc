#include "millrace/ops/queue/register.h"

namespace millrace {

void register_queue_ops(Registry& registry) {
  register_queues(registry);
  register_queue_access(registry);
  register_barrier(registry);
  register_accumulators(registry);
  register_sparse_tensors_map(registry);
  register_session_tensor(registry);
  register_stage(registry);
  register_stack(registry);
}

}  // namespace millrace
