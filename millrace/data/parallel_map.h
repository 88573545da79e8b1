#pragma once

#include <optional>

#include "millrace/data/dataset.h"
#include "millrace/data/function.h"

namespace millrace::data {

struct ParallelMapOptions {
  // Calls at once; kAutotune: as many as keep the processors busy.
  int64_t parallelism = 1;
  // Whether elements come in the order of the input, whichever call ends first; nothing: as the
  // environment says.
  std::optional<bool> ordered;
  // No function ends the dataset before its input.
  bool same_size = false;
};

// f of every element of `input`, several at once.
Ref<Dataset> make_parallel_map_dataset(ElementSpec spec, Ref<Dataset> input, Closure closure,
                                       ParallelMapOptions options);

}  // namespace millrace::data
