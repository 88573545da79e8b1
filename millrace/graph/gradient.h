#pragma once

#include <string>
#include <utility>
#include <vector>

#include "millrace/graph/expr.h"

namespace millrace {

struct OpDef;

// The gradient of a tensor: a tensor of its shape, or rows of one (IndexedSlices): `values` added
// at `indices` of dimension 0 of zeros of shape `dense_shape`.
struct Gradient {
  Expr values;   // invalid: none
  Expr indices;  // valid: rows
  Expr dense_shape;
  bool valid() const { return values.valid(); }
  bool is_slices() const { return indices.valid(); }
};

// `gradient` as one tensor of its shape; invalid for none.
Expr to_dense(const Gradient& gradient);

// Whether tensors of this type have gradients: real and complex numbers, and what holds them.
bool has_gradients(DType type);

// Why an op without a gradient rule has none, in a few words: what its definition says, or what
// follows from its types and traits. Empty: no reason is known, so it should have one.
std::string why_no_gradient(const OpDef& op);

// What a gradient rule sees of the op it differentiates. Rules are written with Expr, so that one
// rule serves a graph (nodes are added) and a tape (operations run), and can itself be
// differentiated.
class GradientContext {
 public:
  GradientContext(OpBuilder& builder, std::vector<Expr> inputs, std::vector<Expr> outputs,
                  const std::vector<Expr>& output_gradients, const AttrMap& attrs,
                  std::vector<DType> input_types);

  OpBuilder& builder() const { return builder_; }
  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(outputs_.size()); }
  Expr input(int i) const { return inputs_[static_cast<size_t>(i)]; }
  Expr output(int i) const { return outputs_[static_cast<size_t>(i)]; }
  // The gradient that came back for output i, as one tensor: never none; zeros when nothing depends
  // on that output.
  Expr gradient(int i = 0) const;
  // Whether anything came back for output i.
  bool has_gradient(int i) const { return output_gradients_[static_cast<size_t>(i)].valid(); }
  // What came back for output i as it is, perhaps rows: for rules that hand it on unchanged.
  const Gradient& gradient_as_is(int i = 0) const {
    return output_gradients_[static_cast<size_t>(i)];
  }
  void set_output_gradient(int i, Gradient gradient) {
    output_gradients_[static_cast<size_t>(i)] = gradient;
  }
  DType input_type(int i) const { return input_types_[static_cast<size_t>(i)]; }

  template <class T>
  Result<T> attr(std::string_view name) const {
    return read_attr<T>(attrs_, name);
  }
  // An attribute of the op as it is, to hand on to an op of the rule.
  const AttrValue& attr_value(std::string_view name) const;

  // Names the computation of gradients that this is part of: what two of them accumulate in one
  // step, such as a gradient TensorArray, must not meet.
  const std::string& source() const { return source_; }
  void set_source(std::string source) { source_ = std::move(source); }

  // The gradient of input i. An input not set has none (it is an index, a shape, a seed).
  void set(int i, Expr gradient) { input_gradients_[static_cast<size_t>(i)] = {gradient, {}, {}}; }
  void set(int i, Gradient gradient) { input_gradients_[static_cast<size_t>(i)] = gradient; }
  // The same as rows.
  void set_slices(int i, Expr values, Expr indices, Expr dense_shape) {
    input_gradients_[static_cast<size_t>(i)] = {values, indices, dense_shape};
  }

  const std::vector<Gradient>& input_gradients() const { return input_gradients_; }

 private:
  OpBuilder& builder_;
  std::vector<Expr> inputs_;
  std::vector<Expr> outputs_;
  std::vector<Gradient> output_gradients_;
  const AttrMap& attrs_;
  std::vector<DType> input_types_;
  std::vector<Gradient> input_gradients_;
  std::string source_ = "gradients";
};

}  // namespace millrace
