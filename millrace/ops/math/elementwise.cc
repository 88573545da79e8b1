#include "millrace/ops/math/elementwise.h"

namespace millrace {
namespace {

constexpr int64_t kBlock = 1024;  // floats in a block, so that a few fit in the first-level cache

// The type whose loop serves `dtype`: the one that computes with it, or has the same bits.
DType loop_type(DType dtype) {
  switch (dtype) {
    case DType::kHalf:
    case DType::kBFloat16:
      return DType::kFloat;
    case DType::kQInt8:
      return DType::kInt8;
    case DType::kQUInt8:
      return DType::kUInt8;
    case DType::kQInt16:
      return DType::kInt16;
    case DType::kQUInt16:
      return DType::kUInt16;
    case DType::kQInt32:
      return DType::kInt32;
    default:
      return dtype;
  }
}

}  // namespace

FloatBlocks float_blocks(DType dtype) {
  switch (dtype) {
    case DType::kHalf:
      return isa_table<FloatBlocksTable>().half;
    case DType::kBFloat16:
      return isa_table<FloatBlocksTable>().bfloat16;
    default:
      return {};
  }
}

UnaryLoop find_unary_loop(const char* op, DType dtype) {
  const UnaryLoop loop = isa_table<UnaryLoops>().find(op, dtype);
  return loop != nullptr ? loop : isa_table<UnaryLoops>(Isa::kBaseline).find(op, dtype);
}

BinaryLoop find_binary_loop(const char* op, DType dtype) {
  const BinaryLoop loop = isa_table<BinaryLoops>().find(op, dtype);
  return loop != nullptr ? loop : isa_table<BinaryLoops>(Isa::kBaseline).find(op, dtype);
}

UnaryFunction::UnaryFunction(const OpInfo& info, DType dtype)
    : loop_(find_unary_loop(info.name, loop_type(dtype))),
      blocks_(float_blocks(dtype)),
      predicate_(info.predicate) {}

void UnaryFunction::operator()(const void* x, void* y, int64_t n) const {
  if (blocks_.to_float == nullptr) return loop_(x, y, n);
  alignas(64) float block[kBlock];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t m = n - i < kBlock ? n - i : kBlock;
    blocks_.to_float(static_cast<const uint16_t*>(x) + i, block, m);
    if (predicate_) {
      loop_(block, static_cast<bool*>(y) + i, m);
    } else {
      loop_(block, block, m);
      blocks_.from_float(block, static_cast<uint16_t*>(y) + i, m);
    }
  }
}

BinaryFunction::BinaryFunction(const OpInfo& info, DType dtype)
    : loop_(find_binary_loop(info.name, loop_type(dtype))),
      blocks_(float_blocks(dtype)),
      predicate_(info.predicate) {
  if (blocks_.to_float != nullptr) return;
  for (int k : {0, 1}) repeated_[k] = isa_table<BinaryLoops>().find_repeated(info.name, dtype, k);
}

void BinaryFunction::through_float(const void* a, const void* b, void* out, int64_t n) const {
  alignas(64) float a_block[kBlock];
  alignas(64) float b_block[kBlock];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t m = n - i < kBlock ? n - i : kBlock;
    blocks_.to_float(static_cast<const uint16_t*>(a) + i, a_block, m);
    blocks_.to_float(static_cast<const uint16_t*>(b) + i, b_block, m);
    if (predicate_) {
      loop_(a_block, b_block, static_cast<bool*>(out) + i, m);
    } else {
      loop_(a_block, b_block, a_block, m);
      blocks_.from_float(a_block, static_cast<uint16_t*>(out) + i, m);
    }
  }
}

}  // namespace millrace
