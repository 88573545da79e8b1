#pragma once

#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/graph/op_def.h"
#include "millrace/kernel/kernel_testing.h"

// How to call every op, for tests that go through the whole registry.

namespace millrace {

// The types of a node: for each attribute of kind type, and of kind list(type), one type. Lists are
// of this type alone.
using TypeChoice = std::map<std::string, DType, std::less<>>;

// Every choice for which the op has a CPU kernel.
std::vector<TypeChoice> type_choices(const OpDef& op);
// Of these, all. Under sanitizers, where a run takes many times as long, some chosen at random that
// together have each type of each attribute.
std::vector<TypeChoice> covering_choices(const OpDef& op, std::mt19937& random);
std::string to_string(const TypeChoice& types);

// One tensor that is given to an op, or what stands behind the handle that is given to it.
struct Operand {
  enum class Kind {
    kTensor,           // the tensor itself; for a reference argument, a variable that holds it
    kVariable,         // a resource variable that holds the tensor
    kTemporary,        // a TemporaryVariable of this shape
    kQueue,            // a queue with two such tensors
    kBarrier,          // a barrier with one, complete
    kKept,             // the handle of such a tensor that the session keeps
    kStack,            // a stack with one
    kAccumulator,      // an accumulator of one such gradient
    kRowsAccumulator,  // a sparse one with these rows
    kGate,             // a gate at step 7
    kArray,            // a TensorArray of two elements, not written
    kFullArray,        // and written
    kList,             // a tensor list of two
    kLists,            // a vector that holds one such list
    kOptional,         // an optional that holds the tensor
    kDataset,          // a dataset with the tensor as its only element
    kIterator,         // an iterator over such a dataset
    kIteratorName,     // the text that names one
    kIteratorState,    // where such an iterator stands
    kSeedGenerator,    // a generator of seeds
    kSparse,           // two packed rows of a sparse tensor
    kRagged,           // a ragged tensor in a variant, a row of no elements and one of all
    kReader,           // a reader that gives what it is told to read
    kReaderState,      // where such a reader stands
    kNames,            // a queue with two strings, closed
    kTable,            // a table with two entries
    kNewTable,         // a table that waits for entries
    kFile,             // the name of a file of two lines
    kNoHandle,         // a handle argument that holds no handle at all
  };
  Kind kind = Kind::kTensor;
  Shape shape = {};
  std::vector<double> values = {};       // empty: made up
  std::optional<std::string> text = {};  // of every string; else made up
};

// A call of an op but for its types.
struct OpCall {
  const OpDef* op = nullptr;
  AttrMap attrs = {};
  std::vector<std::vector<Operand>> arguments = {};  // one list for each input of the definition
  Status (*prepare)(OpEnv&, const TypeChoice&) = nullptr;
};

// One that works: from the table in the source, or else the first that the op takes of those with
// likely shapes and integers. One that does not work: the op needs a row in the table.
OpCall valid_call(const OpDef& op);
// One from words. Inputs are separated by spaces, the tensors of a list by '|' (a list of one ends
// in it). A tensor is a shape, "[2,3]"; a vector with its elements, "{1,0}"; both, "[2,1]{1,0}"; or
// the number in a scalar; after a shape or alone, 'text' is what all strings are. A word before it
// is an Operand::Kind.
OpCall parse_call(const OpDef& op, std::string_view inputs, AttrMap attrs);
std::string to_string(const OpCall& call);

inline constexpr TypeSet kWithoutSign =
    kUnsignedIntegers | TypeSet{DType::kQUInt8, DType::kQUInt16};

// Which elements are made up: floating numbers are multiples of 1/16 up to 1, integers up to 5,
// none of them zero; so they are exact in every type that has them.
enum class Elements { kPositive, kSigned };

// The parts of a call: the tensor that an operand describes, its type, and the attributes: those
// that the call gives, the types, and guesses.
Tensor make_operand(const Operand& operand, DType dtype, Elements elements, uint64_t seed);
DType operand_type(const ArgDef& arg, const TypeChoice& types);
// The type of what the state behind a handle holds.
DType content_type(const TypeChoice& types);
AttrMap call_attrs(const OpCall& call, const TypeChoice& types);

// Runs the call in an environment of its own, shape rules checked: the outputs that are not dead,
// then what the variables among its inputs hold now.
Result<std::vector<Tensor>> run_call(const OpCall& call, const TypeChoice& types,
                                     Elements elements);

}  // namespace millrace
