#pragma once

#include "millrace/data/dataset.h"

namespace millrace::data {

// Batches of `size` (at least 1) elements of `input`. `spec` is that of the batches.
Ref<Dataset> make_batch_dataset(ElementSpec spec, Ref<Dataset> input, int64_t size,
                                bool drop_remainder);

// How many batches of `size` so many elements make; what Dataset::size() says of others stays.
inline int64_t batches_of(int64_t elements, int64_t size, bool drop_remainder) {
  if (elements < 0) return elements;
  return elements / size + (elements % size != 0 && !drop_remainder ? 1 : 0);
}

}  // namespace millrace::data
