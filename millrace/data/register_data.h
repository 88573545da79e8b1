#pragma once

#include "millrace/base/status.h"

namespace millrace {
class Registry;
}  // namespace millrace

namespace millrace::data {

// Registers the ops of datasets and iterators in the process's registries, once; later calls return
// what the first one did. Thread-safe.
Status register_data_ops();

// One for each source with ops.
void register_batch(Registry& registry);
void register_cache(Registry& registry);
void register_choose(Registry& registry);
void register_combine(Registry& registry);
void register_generator(Registry& registry);
void register_group_by_window(Registry& registry);
void register_interleave(Registry& registry);
void register_iterator_ops(Registry& registry);
void register_map(Registry& registry);
void register_options(Registry& registry);
void register_padded_batch(Registry& registry);
void register_parallel_map(Registry& registry);
void register_prefetch(Registry& registry);
void register_records(Registry& registry);
void register_reduce(Registry& registry);
void register_select(Registry& registry);
void register_shuffle(Registry& registry);
void register_sources(Registry& registry);
void register_window(Registry& registry);

}  // namespace millrace::data
