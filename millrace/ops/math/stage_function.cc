#include "millrace/ops/math/stage_function.h"

#include <algorithm>
#include <bit>

#include "millrace/ops/element.h"
#include "millrace/ops/math/elementwise_kernels.h"
#include "millrace/ops/math/select_loops.h"
#include "millrace/ops/math/sweep_loops.h"

namespace millrace {
namespace {

constexpr OpInfo kAdd{"Add", kNumbers, ""};

bool is_select(std::string_view op) { return op == "Select" || op == "SelectV2"; }
bool is_bias_add(std::string_view op) { return op == "BiasAdd" || op == "BiasAddV1"; }

void select(const bool* condition, const void* t, const void* e, void* out, int size, int64_t n) {
  if (size <= 8) {
    static const SelectLoops& loops = isa_table<SelectLoops>();
    return loops.run[std::countr_zero(static_cast<unsigned>(size))](condition, {t, 1}, {e, 1}, out,
                                                                    n);
  }
  const Bytes16* x = static_cast<const Bytes16*>(t);
  const Bytes16* y = static_cast<const Bytes16*>(e);
  Bytes16* z = static_cast<Bytes16*>(out);
  for (int64_t i = 0; i < n; ++i) z[i] = condition[i] ? x[i] : y[i];
}

Result<Shape> merge_shapes(const Shape& a, const Shape& b) {
  if (a == b) return a;
  return invalid_argument("inputs must have one shape: ", a, " and ", b);
}
Result<PartialShape> merge_shapes(const PartialShape& a, const PartialShape& b) {
  return a.merge(b);
}

Status check_bias(const Shape& value, const Shape& bias) {
  if (bias.rank() != 1) return invalid_argument("bias must be a vector, got shape ", bias);
  if (value.rank() < 2) return invalid_argument("value must have rank 2 or more, got ", value);
  const int64_t channels = value.dim(value.rank() - 1);
  if (bias.dim(0) == channels) return ok_status();
  return invalid_argument("bias must have ", channels, " elements for a value of ", value, ", got ",
                          bias);
}
Status check_bias(const PartialShape&, const PartialShape&) { return ok_status(); }

Status check_condition(const Shape& condition, const Shape& t) {
  if (condition.is_scalar() || condition == t) return ok_status();
  if (condition.rank() == 1 && t.rank() >= 1 && condition.dim(0) == t.dim(0)) return ok_status();
  return invalid_argument(
      "'condition' must be a scalar, a vector with one element per row, or of the shape of 't', "
      "which is ",
      t, "; it is ", condition);
}
Status check_condition(const PartialShape&, const PartialShape&) { return ok_status(); }

}  // namespace

Result<StageFunction> StageFunction::make(std::string_view op, std::span<const DType> operands,
                                          DType type) {
  StageFunction f;
  f.arity_ = static_cast<int>(operands.size());
  f.size_ = static_cast<uint8_t>(dtype_size(type));
  const auto wrong = [&] {
    std::string types;
    for (DType operand : operands) append_to(types, str_cat(types.empty() ? "" : ", ", operand));
    return unimplemented(op, " of ", types, " to ", type, " is not computed by blocks");
  };
  if (operands.empty() || !is_plain(type)) return wrong();
  for (DType operand : operands) {
    if (!is_plain(operand)) return wrong();
    f.same_size_ &= dtype_size(operand) == dtype_size(type);
  }
  const DType first = operands[0];
  const auto all_are = [&](DType dtype) {
    return std::all_of(operands.begin(), operands.end(), [&](DType o) { return o == dtype; });
  };
  if (op == "Cast") {
    if (operands.size() != 1 || first == type) return wrong();
    f.kind_ = Kind::kCast;
    f.same_size_ = false;
    MR_TRY_ASSIGN(f.cast_, CastFunction::make(first, type, /*truncate=*/false));
    f.cost_ = f.cast_.cost();
    return f;
  }
  if (is_select(op)) {
    if (operands.size() != 3 || first != DType::kBool || operands[1] != type ||
        operands[2] != type) {
      return wrong();
    }
    f.kind_ = Kind::kSelect;
    f.cost_ = 0.3;
    if (op == "Select") f.shapes_ = Shapes::kSelect;
    return f;
  }
  if (op == "AddN") {
    if (operands.size() < 2 || !all_are(type)) return wrong();
    f.kind_ = Kind::kAddN;
    f.shapes_ = Shapes::kSame;
    f.cost_ = 0.25 * static_cast<double>(operands.size() - 1);
    f.blocks_ = float_blocks(type);
    f.binary_ = BinaryFunction(kAdd, f.blocks_.to_float != nullptr ? DType::kFloat : type);
    return f.binary_ ? Result<StageFunction>(f) : wrong();
  }
  const bool bias = is_bias_add(op);
  const OpInfo* info = operands.size() == 1   ? find_unary_info(op)
                       : operands.size() != 2 ? nullptr
                       : bias                 ? &kAdd
                                              : find_binary_info(op);
  if (info == nullptr || !info->kernels.contains(first) || !all_are(first) ||
      type != (info->predicate ? DType::kBool : first) ||
      (info->check != OperandCheck::kNone && kIntegers.contains(first))) {
    return wrong();
  }
  f.cost_ = static_cast<double>(info->cost);
  if (first == DType::kFloat && !info->predicate) {
    f.sweep_op_ = isa_table<SweepLoops>().find(info->name);
  }
  if (operands.size() == 1) {
    f.unary_ = UnaryFunction(*info, first);
    return f.unary_ ? Result<StageFunction>(f) : wrong();
  }
  f.kind_ = Kind::kBinary;
  f.shapes_ = bias ? Shapes::kBias : info->broadcasts ? Shapes::kBroadcast : Shapes::kSame;
  f.binary_ = BinaryFunction(*info, first);
  return f.binary_ ? Result<StageFunction>(f) : wrong();
}

// A longer sum goes over its result again and again.
bool StageFunction::in_place(int operand) const {
  if (!same_size_ && !(kind_ == Kind::kSelect && operand > 0)) return false;
  return kind_ != Kind::kAddN || arity_ == 2;
}

void StageFunction::operator()(const void* const* operands, void* out, int64_t n) const {
  switch (kind_) {
    case Kind::kUnary:
      return unary_(operands[0], out, n);
    case Kind::kBinary:
      return binary_(operands[0], operands[1], out, n);
    case Kind::kCast:
      return cast_(operands[0], out, n);
    case Kind::kAddN:
      return add_up(operands, out, n);
    case Kind::kSelect:
      break;
  }
  select(static_cast<const bool*>(operands[0]), operands[1], operands[2], out, size_, n);
}

// As the op AddN: from the first to the last, of 16-bit numbers rounded once.
void StageFunction::add_up(const void* const* operands, void* out, int64_t n) const {
  if (blocks_.to_float == nullptr) {
    binary_(operands[0], operands[1], out, n);
    for (int i = 2; i < arity_; ++i) binary_(out, operands[i], out, n);
    return;
  }
  constexpr int64_t kBlock = 512;
  alignas(64) float sum[kBlock], term[kBlock];
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t m = n - at < kBlock ? n - at : kBlock;
    blocks_.to_float(static_cast<const uint16_t*>(operands[0]) + at, sum, m);
    for (int i = 1; i < arity_; ++i) {
      blocks_.to_float(static_cast<const uint16_t*>(operands[i]) + at, term, m);
      binary_(sum, term, sum, m);
    }
    blocks_.from_float(sum, static_cast<uint16_t*>(out) + at, m);
  }
}

template <class AnyShape>
Result<AnyShape> StageFunction::find_shape(std::span<const AnyShape* const> operands) const {
  switch (shapes_) {
    case Shapes::kBroadcast: {
      AnyShape shape = *operands[0];
      for (size_t i = 1; i < operands.size(); ++i) {
        MR_TRY_ASSIGN(shape, broadcast_shapes(shape, *operands[i]));
      }
      return shape;
    }
    case Shapes::kSame: {
      AnyShape shape = *operands[0];
      for (size_t i = 1; i < operands.size(); ++i) {
        MR_TRY_ASSIGN(shape, merge_shapes(shape, *operands[i]));
      }
      return shape;
    }
    case Shapes::kSelect: {
      MR_TRY_ASSIGN(AnyShape shape, merge_shapes(*operands[1], *operands[2]));
      MR_TRY(check_condition(*operands[0], shape));
      return shape;
    }
    case Shapes::kBias:
      break;
  }
  MR_TRY(check_bias(*operands[0], *operands[1]));
  return *operands[0];
}

Result<Shape> StageFunction::shape(std::span<const Shape* const> operands) const {
  return find_shape(operands);
}
Result<PartialShape> StageFunction::shape(std::span<const PartialShape* const> operands) const {
  return find_shape(operands);
}

}  // namespace millrace
