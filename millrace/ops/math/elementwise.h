#pragma once

#include <cstdint>

#include "millrace/graph/op_def.h"
#include "millrace/ops/isa_table.h"
#include "millrace/ops/math/broadcast.h"
#include "millrace/tensor/dtype.h"

// What the tables of elementwise ops (unary_ops.h, binary_ops.h, gradient_ops.h) are made of, and
// the loops that are compiled for each instruction set (isa_table.h) of them.

namespace millrace {

// What a kernel checks about integer operands before it computes.
enum class OperandCheck : uint8_t { kNone, kDivisor, kExponent };

// What a table entry says about its op besides its arithmetic.
struct OpInfo {
  const char* name;
  TypeSet types;  // that the definition allows; {bool} alone: there is no type attribute
  const char* doc;
  TypeSet kernels;  // that can be computed
  const char* inputs[2] = {"x", "y"};
  const char* output = nullptr;  // null: "y" of one input, "z" of two
  float cost = 0.25F;            // nanoseconds per float
  bool predicate = false;        // the result is bool
  bool commutative = false;
  bool broadcasts = true;  // of two inputs: else they have one shape
  bool differentiable = true;
  // The function is holomorphic: the gradient of complex operands uses their conjugates.
  bool holomorphic = true;
  OperandCheck check = OperandCheck::kNone;
  Neutral neutral = Neutral::kNone;
  uint8_t affine_in : 2 = 0, shifted_by : 2 = 0;  // as in OpTraits
  int deprecated_since = 0;
  const char* deprecation = "";

  constexpr OpInfo(const char* op_name, TypeSet op_types, const char* op_doc)
      : name(op_name), types(op_types), doc(op_doc), kernels(op_types) {}

  // This entry with one thing changed, to be chained.
  constexpr OpInfo computed_for(TypeSet dtypes) const {
    OpInfo i = *this;
    i.kernels = dtypes;
    return i;
  }
  constexpr OpInfo arguments(const char* in, const char* out) const {
    OpInfo i = *this;
    i.inputs[0] = in;
    i.output = out;
    return i;
  }
  constexpr OpInfo arguments(const char* a, const char* b, const char* out) const {
    OpInfo i = arguments(a, out);
    i.inputs[1] = b;
    return i;
  }
  constexpr OpInfo costs(float ns) const {
    OpInfo i = *this;
    i.cost = ns;
    return i;
  }
  constexpr OpInfo is_predicate() const {
    OpInfo i = *this;
    i.predicate = true;
    i.differentiable = false;
    return i;
  }
  // The result is constant wherever there is a derivative.
  constexpr OpInfo is_piecewise_constant() const {
    OpInfo i = *this;
    i.differentiable = false;
    return i;
  }
  constexpr OpInfo is_commutative() const {
    OpInfo i = *this;
    i.commutative = true;
    return i;
  }
  constexpr OpInfo same_shape() const {
    OpInfo i = *this;
    i.broadcasts = false;
    return i;
  }
  constexpr OpInfo not_holomorphic() const {
    OpInfo i = *this;
    i.holomorphic = false;
    return i;
  }
  constexpr OpInfo checks(OperandCheck what) const {
    OpInfo i = *this;
    i.check = what;
    return i;
  }
  constexpr OpInfo leaves_alone(Neutral what) const {
    OpInfo i = *this;
    i.neutral = what;
    return i;
  }
  constexpr OpInfo is_affine(uint8_t in, uint8_t shifts) const {
    OpInfo i = *this;
    i.affine_in = in & 3;
    i.shifted_by = shifts & 3;
    return i;
  }
  constexpr OpInfo deprecated(int since, const char* why) const {
    OpInfo i = *this;
    i.deprecated_since = since;
    i.deprecation = why;
    return i;
  }
};

// The entries of a table.
template <class... Ops>
struct OpList {};

// y[i] = f(x[i]) over n elements; y may be x. (BinaryLoop stands in broadcast.h.)
using UnaryLoop = void (*)(const void* x, void* y, int64_t n);

// What unary_isa.cc and binary_isa.cc have: the loop of the op called `op` for one element type
// (never half or bfloat16: see FloatBlocks). Null when the copy has none: the baseline's has.
struct UnaryLoops {
  UnaryLoop (*find)(const char* op, DType dtype);
};
struct BinaryLoops {
  BinaryLoop (*find)(const char* op, DType dtype);
  // The loop in which operand `repeated`, 0 or 1, is a single element, for some ops of floats.
  BinaryLoop (*find_repeated)(const char* op, DType dtype, int repeated);
};

// The best loop this machine can run.
UnaryLoop find_unary_loop(const char* op, DType dtype);
BinaryLoop find_binary_loop(const char* op, DType dtype);

// Conversion of 16-bit floating types to float and back, n elements; null functions for other
// types.
struct FloatBlocks {
  void (*to_float)(const void* from, float* to, int64_t n) = nullptr;
  void (*from_float)(const float* from, void* to, int64_t n) = nullptr;
};
FloatBlocks float_blocks(DType dtype);

// What float_blocks_isa.cc has.
struct FloatBlocksTable {
  FloatBlocks half;
  FloatBlocks bfloat16;
};

// A loop for tensors of any type it was found for: half and bfloat16 pass through blocks of floats.
class UnaryFunction {
 public:
  // Empty when there is no such loop.
  UnaryFunction() = default;
  UnaryFunction(const OpInfo& info, DType dtype);
  explicit operator bool() const { return loop_ != nullptr; }
  void operator()(const void* x, void* y, int64_t n) const;

 private:
  UnaryLoop loop_ = nullptr;
  FloatBlocks blocks_;
  bool predicate_ = false;
};

class BinaryFunction {
 public:
  BinaryFunction() = default;
  BinaryFunction(const OpInfo& info, DType dtype);
  explicit operator bool() const { return loop_ != nullptr; }
  // Whether repeated() takes a single element for that operand.
  bool takes_repeated(int operand) const { return repeated_[operand] != nullptr; }
  void repeated(int operand, const void* a, const void* b, void* out, int64_t n) const {
    repeated_[operand](a, b, out, n);
  }
  void operator()(const void* a, const void* b, void* out, int64_t n) const {
    if (blocks_.to_float == nullptr) {
      loop_(a, b, out, n);
    } else {
      through_float(a, b, out, n);
    }
  }

 private:
  void through_float(const void* a, const void* b, void* out, int64_t n) const;

  BinaryLoop loop_ = nullptr;
  BinaryLoop repeated_[2] = {};
  FloatBlocks blocks_;
  bool predicate_ = false;
};

}  // namespace millrace
