#pragma once

#include <memory>
#include <vector>

#include "millrace/eager/prepared_op.h"
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

  // Of calls that run at once. No input is a list, and there is at most one output, or list of
  // them:
  bool plain = false;
  // The last such call's attributes, and what they came to.
  std::vector<nb::object> last_attrs = {};
  std::unique_ptr<eager::Op> eager = nullptr;
};

}  // namespace millrace::python
