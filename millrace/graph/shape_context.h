#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "millrace/graph/attr_value.h"
#include "millrace/tensor/partial_shape.h"
#include "millrace/tensor/resource_handle.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

struct OpDef;

// The elements of a small integer tensor of rank 0 or 1, as far as they are known: -1 in a shape
// vector is a value like any other, so an unknown element is a missing one.
struct PartialValue {
  bool is_scalar = false;
  std::vector<std::optional<int64_t>> elements;
  bool fully_known() const;
  friend bool operator==(const PartialValue&, const PartialValue&) = default;
};

// What inference knows of one tensor.
struct TensorFacts {
  PartialShape shape;
  // Set for small integer tensors whose elements are at least partly known.
  std::optional<PartialValue> value;
  // Set for constants (host tensor): for rules that need more than small integers.
  const Tensor* constant = nullptr;
  // For a resource, or a variant that is a list of tensors: dtypes and shapes of what it holds (one
  // for a list, that of its elements).
  std::vector<ResourceHandle::DTypeAndShape> resource;
};

// What a shape rule sees of its node, and where it puts its answer. Errors are the user's mistake
// and say what was expected and what came; the caller adds the node's name and origin.
class ShapeContext {
 public:
  ShapeContext(const OpDef& op, const AttrMap& attrs, std::vector<const TensorFacts*> inputs,
               std::vector<DType> input_types, std::vector<DType> output_types);

  const OpDef& op() const { return op_; }
  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(outputs_.size()); }
  DType input_type(int i) const { return input_types_[static_cast<size_t>(i)]; }
  DType output_type(int i) const { return output_types_[static_cast<size_t>(i)]; }

  const PartialShape& input(int i) const { return inputs_[static_cast<size_t>(i)]->shape; }
  const TensorFacts& input_facts(int i) const { return *inputs_[static_cast<size_t>(i)]; }
  template <class T>
  Result<T> attr(std::string_view name) const {
    return read_attr<T>(attrs_, name);
  }
  const AttrMap& attrs() const { return attrs_; }

  // Input i, which must have this rank (or unknown rank, then a shape of unknown sizes is
  // returned).
  Result<PartialShape> with_rank(int i, int rank) const;
  Result<PartialShape> with_rank_at_least(int i, int rank) const;
  Result<PartialShape> with_rank_at_most(int i, int rank) const;
  // Input i read as a shape vector: what is known of the shape it describes. An element of -1 is an
  // unknown size. Unknown when nothing is known.
  Result<PartialShape> input_as_shape(int i) const;
  // The single integer in input i (scalar or one element), when known.
  std::optional<int64_t> input_scalar(int i) const;
  // All elements of the integer vector in input i, when all are known.
  std::optional<std::vector<int64_t>> input_vector(int i) const;

  void set_output(int i, PartialShape shape) {
    outputs_[static_cast<size_t>(i)].shape = std::move(shape);
  }
  void set_output_resource(int i, std::vector<ResourceHandle::DTypeAndShape> contents) {
    outputs_[static_cast<size_t>(i)].resource = std::move(contents);
  }
  const PartialShape& output(int i) const { return outputs_[static_cast<size_t>(i)].shape; }
  std::vector<TensorFacts>& outputs() { return outputs_; }

 private:
  const OpDef& op_;
  const AttrMap& attrs_;
  std::vector<const TensorFacts*> inputs_;
  std::vector<DType> input_types_;
  std::vector<DType> output_types_;
  std::vector<TensorFacts> outputs_;  // unknown until set
};

// Rules that many ops share.
namespace shape_rules {
Status unchanged(ShapeContext& c);  // output 0 as input 0
Status scalar(ShapeContext& c);     // all outputs are scalars
Status unknown(ShapeContext& c);    // nothing is known
Status no_outputs(ShapeContext& c);
Status broadcast(ShapeContext& c);  // output 0 is inputs 0 and 1 broadcast together
Status merged(ShapeContext& c);     // all inputs have one shape, which all outputs have too
}  // namespace shape_rules

// The shape of two tensors broadcast together by NumPy's rule; INVALID_ARGUMENT with both shapes.
Result<PartialShape> broadcast_shapes(const PartialShape& a, const PartialShape& b);
Result<Shape> broadcast_shapes(const Shape& a, const Shape& b);

// What a value rule sees: the facts of the inputs, and the shapes already inferred for the outputs.
// It sets values only where it knows them.
class ValueContext {
 public:
  explicit ValueContext(ShapeContext& shapes) : shapes_(shapes) {}
  // Null when nothing is known of input i's elements.
  const PartialValue* input(int i) const;
  const PartialShape& input_shape(int i) const { return shapes_.input(i); }
  int num_inputs() const { return shapes_.num_inputs(); }
  template <class T>
  Result<T> attr(std::string_view name) const {
    return shapes_.attr<T>(name);
  }
  void set_output(int i, PartialValue value);

 private:
  ShapeContext& shapes_;
};

// The largest number of elements a PartialValue holds; larger tensors have no known value.
inline constexpr int64_t kMaxValueElements = 1024;

// Runs the shape rule and then the value rule of a node: the facts of its outputs. An output of a
// constant gets its shape and value from the attribute. INVALID_ARGUMENT from the rule as it is, or
// for a shape no tensor can have. An op without a shape rule has outputs of unknown shape.
Result<std::vector<TensorFacts>> infer(ShapeContext& context);

}  // namespace millrace
