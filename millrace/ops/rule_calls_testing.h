#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "millrace/graph/shape_context.h"
#include "millrace/ops/op_calls_testing.h"

// Shape rules and value rules of any op called without a graph, and what no program means to give
// them: for tests that go through the whole registry.

namespace millrace {

// What a rule is told of one input.
struct Known {
  TensorFacts facts;
  Tensor constant = {};  // invalid: the input is no constant
};

// A tensor with all its elements.
Known known_constant(Tensor tensor);

// A call of an op as its rules see it.
struct RuleCall {
  const OpDef* op = nullptr;
  AttrMap attrs;
  std::vector<std::vector<Known>> arguments;  // one list for each input of the definition
};

// The call with all that a graph can know of its inputs: constants, the shape of a reference, the
// type and shape of a resource variable; of other handles that they are scalars.
RuleCall rule_call(const OpCall& call, const TypeChoice& types);
// Long lists are cut.
std::string to_string(const RuleCall& call);
// What the rules say; the definition's own checks (attributes, number of inputs) come first.
Result<std::vector<TensorFacts>> infer(RuleCall& call);

// Of the types an op has kernels for, one choice: float (or, for rules that compute values, int64)
// numbers, and indices of 64 bits, where it may choose.
TypeChoice representative_types(const OpDef& op, DType numbers = DType::kFloat);

// Integers at the ends of what programs, 32 bits and 64 bits hold.
extern const std::vector<int64_t> kExtremeInts;
extern const std::vector<float> kExtremeFloats;
// Values for an attribute whose usual value is `usual` (null: none): numbers as above at every
// place of a list, lists of 0, 1 and 255 elements, and every allowed word.
std::vector<AttrValue> extreme_attrs(const AttrDef& attr, const AttrValue* usual);
// A list of a million numbers, or of as many shapes as take that memory; empty for other kinds.
AttrValue long_attr(const AttrDef& attr);
// Shapes near `usual` of unknown rank and sizes, of zero and huge sizes, and of other ranks.
std::vector<PartialShape> extreme_shapes(const Shape& usual);

// Prints what `describe` says when a signal ends the process while this lives.
class CrashReport {
 public:
  explicit CrashReport(std::function<std::string()> describe);
  ~CrashReport();
};

}  // namespace millrace
