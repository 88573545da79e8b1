#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "millrace/graph/shape_context.h"
#include "millrace/ops/math/cast.h"
#include "millrace/ops/math/elementwise.h"
#include "millrace/tensor/shape.h"

namespace millrace {

// One op of an ElementwiseTree: an entry of the tables of elementwise ops, Cast, Select, SelectV2,
// BiasAdd along the last dimension, or AddN, with its attributes at their defaults. It computes
// blocks of elements, to the bit as the op's own kernel does. Immutable.
class StageFunction {
 public:
  // UNIMPLEMENTED for what has to look at all of an operand first (a division of integers), and for
  // ops and types that have no loops.
  static Result<StageFunction> make(std::string_view op, std::span<const DType> operands,
                                    DType type);

  // out[i] = f(operands[0][i], operands[1][i], ...) for i < n. `out` may be operand k's memory when
  // in_place(k).
  void operator()(const void* const* operands, void* out, int64_t n) const;
  bool in_place(int operand) const;
  // Of two operands: whether repeated() takes a single element for that one. The rest is as above.
  bool takes_repeated(int operand) const {
    return kind_ == Kind::kBinary && binary_.takes_repeated(operand);
  }
  void repeated(int operand, const void* a, const void* b, void* out, int64_t n) const {
    binary_.repeated(operand, a, b, out, n);
  }
  // The number of the op in SweepLoops; -1: it is none of them.
  int sweep_op() const { return sweep_op_; }
  // Nanoseconds per element.
  double cost() const { return cost_; }

  // Whether shape() is sure to give that of the largest operand, without asking, when all have it,
  // or (`all` false) the others are single elements of no higher rank.
  bool takes(bool all) const {
    return shapes_ == Shapes::kBroadcast || (all && shapes_ != Shapes::kBias);
  }
  // The shape of the result; the op's error for operands that do not go together.
  Result<Shape> shape(std::span<const Shape* const> operands) const;
  Result<PartialShape> shape(std::span<const PartialShape* const> operands) const;
  // The condition of a Select that picks rows counts from the first dimension: then its shape with
  // ones behind, so that it is broadcast like anything else.
  bool picks_rows(const Shape& condition, const Shape& result) const {
    return shapes_ == Shapes::kSelect && condition.rank() == 1 && result.rank() > 1;
  }

 private:
  enum class Kind : uint8_t { kUnary, kBinary, kCast, kSelect, kAddN };
  enum class Shapes : uint8_t { kBroadcast, kSame, kSelect, kBias };

  template <class AnyShape>
  Result<AnyShape> find_shape(std::span<const AnyShape* const> operands) const;
  void add_up(const void* const* operands, void* out, int64_t n) const;

  Kind kind_ = Kind::kUnary;
  Shapes shapes_ = Shapes::kBroadcast;
  bool same_size_ = true;  // of the elements of operands and result
  double cost_ = 0.25;
  uint8_t size_ = 0;  // of a result's element
  int arity_ = 0;
  int sweep_op_ = -1;
  UnaryFunction unary_;
  BinaryFunction binary_;
  CastFunction cast_;
  FloatBlocks blocks_;  // of an AddN of half or bfloat16
};

}  // namespace millrace
