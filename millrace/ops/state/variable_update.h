#pragma once

#include "millrace/kernel/kernel.h"
#include "millrace/ops/state/variable.h"

namespace millrace {

// The variables that a kernel updates: its first inputs, references or resources.
//
//   VariableUpdate update(ctx, use_locking_);
//   MR_TRY(update.open(1, value.dtype()));
//   ... checks against update.tensor(0) ...
//   MR_TRY_ASSIGN(Tensor* tensor, update.writable(0));
//   ... writes elements ...
//   update.forward();
//
// Resource variables stay locked for its life. So do reference variables with use_locking;
// otherwise their elements are written in place without a lock, so that who reads meanwhile may
// see a part of the update and two updates may overwrite each other.
class VariableUpdate {
 public:
  static constexpr int kMaxVariables = 4;

  VariableUpdate(KernelContext& ctx, bool use_locking) : ctx_(ctx), use_locking_(use_locking) {}
  VariableUpdate(const VariableUpdate&) = delete;
  VariableUpdate& operator=(const VariableUpdate&) = delete;
  ~VariableUpdate();

  // Finds inputs [0, count) and locks them, in an order that all kernels share. FAILED_PRECONDITION
  // for a variable without value, INVALID_ARGUMENT for one of another type than `dtype` and for the
  // same variable given twice. At most once.
  Status open(int count, DType dtype);

  // Variable k as it is.
  const Tensor& tensor(int k) const { return *tensors_[k]; }
  // The same, to be written: copied first when it is locked and somebody else holds its buffer, or
  // when a Snapshot keeps it as it is.
  Result<Tensor*> writable(int k);
  // Hands the reference in input 0 on as output 0; nothing for resources, whose ops have no output.
  void forward();

 private:
  Status find(int k, DType dtype);
  Status check(int k, DType dtype) const;
  const void* identity(int k) const;
  void lock(int k);
  Status leave_snapshot(int k);

  KernelContext& ctx_;
  const bool use_locking_;
  int locked_ = 0;  // of order_, those that are locked
  int order_[kMaxVariables] = {};
  Ref<ResourceVariable> variables_[kMaxVariables];  // of resources
  Tensor held_[kMaxVariables];                      // of references without a lock
  Tensor* tensors_[kMaxVariables] = {};
};

// INVALID_ARGUMENT where updates by which a variable is divided are integers and one is zero.
Status check_divisors(const Tensor& updates);

}  // namespace millrace
