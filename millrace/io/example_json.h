#pragma once

#include <string>

#include "millrace/base/status.h"

namespace millrace {

// A serialized tf.Example of one that is written in JSON; INVALID_ARGUMENT for another text, and
// for one that is nested too deeply.
Result<std::string> example_from_json(const std::string& json);

}  // namespace millrace
