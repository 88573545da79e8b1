#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/graph/attr_value.h"
#include "millrace/graph/spec.h"
#include "millrace/tensor/dtype.h"

namespace millrace {

class GradientContext;
class ShapeContext;
class ValueContext;

// Computes the output shapes of a node from what is known of its inputs. See shape_context.h.
using ShapeRule = Status (*)(ShapeContext&);
// Computes small integer outputs from partly known inputs, without a kernel. See shape_context.h.
using ValueRule = void (*)(ValueContext&);
// Adds the operations that compute the gradients of a node's inputs. See gradient.h.
using GradientRule = Status (*)(GradientContext&);

// What the executor does with a node instead of just running its kernel.
enum class ControlFlow : uint8_t {
  kNone,
  kSwitch,
  kMerge,
  kEnter,
  kExit,
  kNextIteration,
  kLoopCond,
  kControlTrigger,
};

// How an op runs the functions in its attributes. A session replaces such a node by the functions'
// nodes, joined by the control flow above.
enum class FunctionalOp : uint8_t {
  kNone,
  kCall,              // attribute "f"
  kIf,                // "then_branch" or "else_branch", by input 0
  kCase,              // one of "branches", by input 0
  kWhile,             // "body" as long as "cond" holds
  kSymbolicGradient,  // the gradient of "f"
};

// What one operand of an elementwise op may be, so that the op leaves the other as it is.
enum class Neutral : uint8_t {
  kNone,
  kZero,       // x - 0
  kMinusZero,  // x + 0: of real numbers -0, for -0 + 0 is 0
  kOne,        // x * 1
};

// Facts about an op that passes and the executor ask for. No pass keeps a list of op names.
struct OpTraits {
  bool stateful = false;     // has effects or memory: never folded, merged, or run twice
  bool commutative = false;  // inputs may be swapped
  bool aggregate = false;    // sums its inputs
  bool elementwise = false;  // each output element depends on the matching input elements only
  bool allows_uninitialized_input = false;  // takes a reference whose variable has no value yet
  bool step_state = false;     // makes a resource that ends with the step (TensorArray, Stack)
  bool owns_state = false;     // makes a resource that lives as long as the session
  bool blocks = false;         // may hold its thread for long: runs outside the pool
  bool send = false;           // hands a tensor to a rendezvous; runs even when dead
  bool recv = false;           // takes one from there
  bool metadata_only = false;  // needs its inputs' shapes, never their elements (Shape, Size, Rank)
  // Touches no elements: its outputs are its inputs' buffers, wherever those lie (Reshape, Switch).
  // Which follows which is in runtime/memory.h.
  bool forwards = false;
  bool placeholder = false;           // stands for a value that must be fed
  bool argument = false;              // parameter of a function body
  bool result = false;                // result of a function body
  bool constant = false;              // its value is its attribute "value"
  bool cannot_differentiate = false;  // has no gradient by its nature: gradients end here, no error
  bool permutes = false;  // output 0 is input 0, its dimensions in the order that input 1 lists
  // Output 0 is input 0, to the bit, whenever the two have one shape: Reshape, Tile, Slice, Sum.
  bool same_when_same_shape = false;
  ControlFlow control_flow = ControlFlow::kNone;
  FunctionalOp functional = FunctionalOp::kNone;
  // Bit i: the kernel may hand input i on as an output (same buffer).
  uint32_t may_alias = 0;
  // Bit i: the kernel keeps input i past the step, so a borrowed buffer is copied first.
  uint32_t retains = 0;
  // Rough cost of one output element in nanoseconds on a CPU; 0: not worth a thread of its own.
  float cost = 0;
  // Bit i: without elements in input i, a list of things to do, output 0 is input 0, to the bit.
  uint32_t same_when_empty = 0;
  // Of two inputs that are broadcast together: f(x, neutral) is x, with `commutative` f(neutral, x)
  // too. To the bit for integers and bool; of real numbers a signalling NaN comes out quiet.
  Neutral neutral = Neutral::kNone;
  // The op that gives the sum of N nodes of this one whose attributes are equal, and of M others:
  // it has these attributes, N and M, a list of M others first, the first of which it may
  // overwrite, and a list of N for each input here. It rounds differently from adding them up.
  std::string_view summed_by = {};
  // The op that computes a tree of such elementwise ops at once, a block that fits the cache after
  // the other: its attributes name the ops and say which reads which. Results are equal to the bit.
  std::string_view fused_by = {};
  // Bit i: output 0 is input i, scaled and shifted by numbers that follow from the other inputs:
  // element by element where the op is elementwise, else channel by channel (attribute data_format,
  // or the last dimension), with a vector of channels in each of the others. An op with an
  // attribute is_training does so where that is false. The shift is zero where those of the others
  // are zero that have a bit in `shifted_by`.
  uint32_t affine_in = 0;
  uint32_t shifted_by = 0;
  // Not 0: input 1 is a filter. Output 0 is linear in it, and its channels (as above) are numbered
  // by those dimensions of the filter that have a bit here, counted from the last one: bit 0 is the
  // last. Attributes transpose_NAME and adj_NAME swap the last two.
  uint32_t filter_channels = 0;
  // The op with the same inputs, outputs and attributes that computes nearly the same faster: it
  // rounds differently, within the tolerance that docs/optimisation.md tells.
  std::string_view approximated_by = {};
  // Output 0 is input 0, folded along the dimensions that input 1 lists; these are dropped, or have
  // size 1 where attribute keep_dims is true.
  bool folds = false;
  // Bit i: input i (output i) is a batch of images, its dimensions in the order that attribute
  // data_format names.
  uint32_t image_inputs = 0;
  uint32_t image_outputs = 0;
  // The argument whose elements number dimensions of the other inputs: the axis of Concat and
  // Split, the dimensions that Sum folds. And those with a row or an element for each, one or, with
  // commas between them, several: "paddings" of Pad, "begin,size" of Slice.
  std::string_view dimensions_in = {};
  std::string_view each_dimension_in = {};
};

// One input or output of an op definition.
struct ArgDef {
  std::string name;
  // Exactly one of these says the type: a fixed dtype, the attribute that holds it, or the
  // attribute that holds the list of types.
  DType dtype = DType::kInvalid;
  std::string type_attr;
  std::string type_list_attr;
  // With dtype or type_attr: the int attribute that says how many tensors there are.
  std::string number_attr;
  bool is_ref = false;
  // The elements are for the host, whatever device runs the op: shapes, axes, counts, predicates.
  bool host = false;
  std::string doc;

  bool is_list() const { return !number_attr.empty() || !type_list_attr.empty(); }
};

// One attribute of an op definition.
struct AttrDef {
  std::string name;
  std::string type;         // "int", "list(shape)", ...
  AttrValue default_value;  // empty: must be given
  bool has_minimum = false;
  int64_t minimum = 0;                       // of an int, or of a list's length
  TypeSet allowed_types;                     // empty: any
  std::vector<std::string> allowed_strings;  // empty: any
  std::string doc;
};

// The definition of an op: what passes, autodiff, clients and code generators know about it.
struct OpDef {
  std::string name;
  std::string doc;
  std::vector<ArgDef> inputs;
  std::vector<ArgDef> outputs;
  std::vector<AttrDef> attrs;
  OpTraits traits;
  ShapeRule shape = nullptr;
  ValueRule value = nullptr;
  GradientRule gradient = nullptr;
  std::string no_gradient;   // why there is no rule; empty: see why_no_gradient() in gradient.h
  int deprecated_since = 0;  // graph version from which new graphs may not use it; 0: never
  std::string deprecation;
  // Stands for an op that nobody registered, in an imported graph.
  bool unknown = false;

  const AttrDef* find_attr(std::string_view name) const;
};

// How op definitions are written: designated fields, types and attributes in words.
//
//   registry.add({.name = "Concat",
//                 .doc = "Joins tensors along one dimension.",
//                 .inputs = {{"concat_dim", "int32"}, {"values", "N*T"}},
//                 .outputs = {{"output", "T"}},
//                 .types = {{"T", {}}},
//                 .attrs = {{"N", "int >= 2"}},
//                 .shape = concat_shape,
//                 .gradient = concat_grad});
struct OpSpec {
  // "T" (a type attribute), "float" (a dtype), "N*T", "N*int32", "list(Tin)", and around any of
  // them "ref(...)" for a reference or "host(...)" for what the host reads or writes on any device.
  struct Arg {
    SpecText name;
    SpecText type;
    SpecText doc = {};
  };
  // A type attribute with its allowed types ({}: any) and default (kInvalid: none).
  struct Type {
    SpecText name;
    TypeSet allowed;
    DType default_type = DType::kInvalid;
  };
  // "int", "int >= 1", "int = 0", "bool = false", "string = \"\"", "string = 'SAME' in
  // {'SAME','VALID'}", "float = 1e-3", "list(int) = []", "list(type) >= 1", "shape", "tensor",
  // "func", "type = float".
  struct Attr {
    SpecText name;
    SpecText type;
    SpecText doc = {};
  };

  SpecText name;
  SpecText doc;
  SpecList<Arg> inputs = {};
  SpecList<Arg> outputs = {};
  SpecList<Type> types = {};
  SpecList<Attr> attrs = {};
  OpTraits traits = {};
  ShapeRule shape = nullptr;
  ValueRule value = nullptr;
  GradientRule gradient = nullptr;
  // Why there is no rule, in a few words, where types and traits do not tell: "counts elements".
  SpecText no_gradient = {};
  int deprecated_since = 0;
  SpecText deprecation = {};
};
extern template class SpecList<OpSpec::Arg>;
extern template class SpecList<OpSpec::Type>;
extern template class SpecList<OpSpec::Attr>;

// The definition that `spec` describes; INVALID_ARGUMENT says what is wrong with it.
Result<OpDef> parse_op_spec(const OpSpec& spec);

// The types of a node's inputs (or outputs), one per tensor, list arguments expanded, given its
// attributes (defaults filled in). A reference argument gives a reference type.
Result<std::vector<DType>> expand_types(const std::vector<ArgDef>& args, const AttrMap& attrs);

// True for elements that only the host can hold, whatever an op declares: strings, handles of
// resources, variants.
inline bool lives_on_host(DType type) { return !is_plain(base_type(type)); }
// For each of those tensors whether its elements are for the host on every device: declared so, or
// of a type that lives there.
Result<std::vector<bool>> expand_host(const std::vector<ArgDef>& args, const AttrMap& attrs);

// Checks `attrs` against the definition and adds the defaults: every attribute present, of the
// right kind, in range; nothing unknown (names that begin with '_' are free). INVALID_ARGUMENT
// naming op and attribute. Reference types stand only in unrestricted lists of types and in the
// parameters and results of function bodies: so functional nodes can capture variables.
Status check_attrs(const OpDef& op, AttrMap& attrs);

}  // namespace millrace
