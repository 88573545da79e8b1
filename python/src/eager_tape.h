#pragma once

#include "millrace/graph/gradient.h"
#include "python/src/binding.h"

namespace millrace::python {

// Calls a gradient rule of Python's for an op that ran eagerly: `context` is of an eager builder.
Status call_eager_rule(nb::handle rule, GradientContext& context);

}  // namespace millrace::python
