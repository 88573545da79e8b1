#pragma once

#include <memory>
#include <string_view>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/math/elementwise.h"

// What unary.cc and binary.cc share: kernels over a table entry's loops, and its rules.

namespace millrace {

// y = f(x), over x's memory when nobody else needs it.
class UnaryKernel final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node, const OpInfo& info);
  UnaryKernel(const OpInfo& info, UnaryFunction function) : info_(info), function_(function) {}
  Status compute(KernelContext& ctx) const override;

 private:
  const OpInfo& info_;
  UnaryFunction function_;
};

// z = f(x, y), broadcast where the op does that.
class BinaryKernel final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node, const OpInfo& info);
  BinaryKernel(const OpInfo& info, BinaryFunction function, DType dtype,
               bool unequal_shapes_compare)
      : info_(info),
        function_(function),
        dtype_(dtype),
        unequal_shapes_compare_(unequal_shapes_compare) {}
  Status compute(KernelContext& ctx) const override;

 private:
  Status compute_broadcast(KernelContext& ctx) const;

  const OpInfo& info_;
  BinaryFunction function_;
  DType dtype_;
  // Of Equal and NotEqual: operands that do not go together are unequal instead of an error.
  bool unequal_shapes_compare_;
};

// INVALID_ARGUMENT when an integer operand is one the op has no answer for: "Integer division by
// zero", "Integers to negative integer powers are not allowed".
Status check_operand(OperandCheck check, const Tensor& y);

// The entry of the op called `name`; null when there is none.
template <class... Ops>
const OpInfo* find_info(std::string_view name, OpList<Ops...>) {
  const OpInfo* info = nullptr;
  ((info = name == Ops::info.name ? &Ops::info : info), ...);
  return info;
}
const OpInfo* find_unary_info(std::string_view name);
const OpInfo* find_binary_info(std::string_view name);

// The definition of a table entry, without its rules.
OpSpec elementwise_spec(const OpInfo& info, int num_inputs);

// The conjugate of a complex tensor, else x itself.
Expr conjugate(Expr x);

}  // namespace millrace
