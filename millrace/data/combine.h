#pragma once

#include "millrace/data/dataset.h"

namespace millrace::data {

// A dataset `count` times, one after the other; a negative count: without end.
Ref<Dataset> make_repeat_dataset(Ref<Dataset> input, int64_t count);

}  // namespace millrace::data
