#pragma once

#include <string>

#include "millrace/data/dataset.h"

namespace millrace::data {

// The elements of `input`, kept in a file of records when they are first made: each component a
// record, a TensorProto. The file, `name` with ".cache" after it, appears once it is whole; until
// then elements are made, and written aside.
Ref<Dataset> make_file_cache_dataset(Ref<Dataset> input, std::string name);

}  // namespace millrace::data
