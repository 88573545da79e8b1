#pragma once

#include "millrace/base/status.h"

namespace millrace {

class Registry;

// Registers every op family, definitions and kernels, in `registry`.
void register_all_ops(Registry& registry);

// Registers every op in the process's registries, once; later calls return what the first one did.
// Thread-safe.
Status register_ops();

// The families, one for each folder, and datasets. The build writes these functions from the
// folder's sources: each calls register_x() of every x.cc (cmake/RegisterOps.cmake).
void register_array_ops(Registry& registry);       // make, reshape, cut, join, look up
void register_collective_ops(Registry& registry);  // what devices of several tasks compute together
void register_control_ops(Registry& registry);     // branches, loops, order, the ends of edges
void register_data_ops(Registry& registry);        // datasets and iterators: millrace/data
void register_image_ops(Registry& registry);       // sizes, colours and boxes of images in memory
void register_io_ops(Registry& registry);          // files: checkpoints, records, examples
void register_linalg_ops(Registry& registry);      // products and decompositions of matrices
void register_math_ops(Registry& registry);        // elementwise arithmetic, casts, selection
void register_nn_ops(Registry& registry);          // layers of neural networks
void register_queue_ops(Registry& registry);       // queues, barriers, accumulators, stacks
void register_random_ops(Registry& registry);      // same seeds, same numbers on any machine
void register_reduce_ops(Registry& registry);      // folds, scans, sums by segment
void register_sparse_ops(Registry& registry);      // sparse tensors: indices, values, shape
void register_state_ops(Registry& registry);       // variables of both kinds and their updates
void register_summary_ops(Registry& registry);     // what event files show: scalars, images ...
void register_strings_ops(Registry& registry);     // join, split, cut, convert, hash
void register_table_ops(Registry& registry);       // maps from keys to values, from files too
void register_tensor_array_ops(Registry& registry);  // arrays of tensors that live for one step
void register_tensor_list_ops(Registry& registry);   // lists of tensors that are values
void register_training_ops(Registry& registry);      // optimisers: a variable from its gradient

}  // namespace millrace
