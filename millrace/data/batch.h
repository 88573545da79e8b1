#pragma once

#include "millrace/data/dataset.h"

namespace millrace::data {

// Batches of `size` (at least 1) elements of `input`. `spec` is that of the batches.
Ref<Dataset> make_batch_dataset(ElementSpec spec, Ref<Dataset> input, int64_t size,
                                bool drop_remainder);

}  // namespace millrace::data
