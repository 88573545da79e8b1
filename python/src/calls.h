#pragma once

#include <vector>

#include "millrace/graph/op_def.h"
#include "python/src/binding.h"

namespace millrace::python {

// What calls of one op need to know.
struct PyOp {
  explicit PyOp(const OpDef& op);

  const OpDef* def;
  // Those that the caller gives, required ones first, as in the signature of the op's function.
  std::vector<const AttrDef*> attrs;
  nb::object result_class;  // a namedtuple, for several outputs
};

}  // namespace millrace::python
