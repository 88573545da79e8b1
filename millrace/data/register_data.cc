#include "millrace/data/register_data.h"

#include "millrace/kernel/registry.h"

namespace millrace::data {

Status register_data_ops() {
  static const Status* status = [] {
    Registry registry(OpRegistry::global(), KernelRegistry::global());
    register_batch(registry);
    register_cache(registry);
    register_choose(registry);
    register_combine(registry);
    register_generator(registry);
    register_group_by_window(registry);
    register_interleave(registry);
    register_iterator_ops(registry);
    register_map(registry);
    register_options(registry);
    register_padded_batch(registry);
    register_parallel_map(registry);
    register_prefetch(registry);
    register_records(registry);
    register_reduce(registry);
    register_select(registry);
    register_shuffle(registry);
    register_sources(registry);
    register_window(registry);
    return new Status(registry.status());
  }();
  return *status;
}

}  // namespace millrace::data
