#include "millrace/ops/state/variable_update.h"

#include <algorithm>
#include <functional>
#include <span>

#include "millrace/kernel/recorder.h"
#include "millrace/ops/device_engine.h"
#include "millrace/tensor/dispatch.h"
#include "millrace/tensor/snapshot_copy.h"

namespace millrace {
namespace {

bool in_snapshot(const Tensor& tensor) { return tensor.buffer() && tensor.buffer()->in_snapshot(); }

// A copy that is recorded instead of made would have its place in the variable before its elements.
Status check_not_recorded(const KernelContext& ctx) {
  if (as_recorder(ctx.device()) == nullptr) return ok_status();
  return unavailable("somebody else sees the variable now");
}

}  // namespace

// How many locks there are, and which, is known at run time only: beyond clang's analysis.
MR_NO_THREAD_SAFETY_ANALYSIS VariableUpdate::~VariableUpdate() {
  while (locked_ > 0) {
    const int k = order_[--locked_];
    if (variables_[k]) {
      variables_[k]->unlock();
    } else {
      ctx_.input_ref(k).mu.unlock();
    }
  }
}

const void* VariableUpdate::identity(int k) const {
  if (variables_[k]) return variables_[k].get();
  return &ctx_.input_ref(k);
}

Status VariableUpdate::find(int k, DType dtype) {
  order_[k] = k;
  if (!ctx_.input_is_ref(k)) {
    MR_TRY_ASSIGN(variables_[k], variable_input(ctx_, k));
    MR_TRY(check_variable_type(*variables_[k], dtype));
    if (Recorder* const recorder = as_recorder(ctx_.device())) recorder->changes(identity(k));
  }
  for (int other = 0; other < k; ++other) {
    if (identity(other) == identity(k)) {
      return invalid_argument("inputs ", other, " and ", k, " must be different variables");
    }
  }
  return ok_status();
}

MR_NO_THREAD_SAFETY_ANALYSIS void VariableUpdate::lock(int k) {
  if (variables_[k]) {
    variables_[k]->lock();
    tensors_[k] = &variables_[k]->tensor();
    ++locked_;
    return;
  }
  RefCell& cell = ctx_.input_ref(k);
  if (use_locking_) {
    cell.mu.lock();
    tensors_[k] = &cell.tensor;
    ++locked_;
  } else {
    held_[k] = cell.read();
    tensors_[k] = &held_[k];
  }
}

Status VariableUpdate::check(int k, DType dtype) const {
  if (!tensors_[k]->valid()) {
    if (variables_[k]) return uninitialized_variable(ctx_.input(k).item<ResourceHandle>());
    return uninitialized_value(ctx_.input_ref(k));
  }
  if (tensors_[k]->dtype() != dtype) {
    return invalid_argument("input ", k, " must be a variable of ", dtype, ", it holds ",
                            tensors_[k]->dtype());
  }
  return ok_status();
}

Status VariableUpdate::open(int count, DType dtype) {
  MR_CHECK(count <= kMaxVariables && locked_ == 0);
  for (int k = 0; k < count; ++k) MR_TRY(find(k, dtype));
  std::sort(order_, order_ + count,
            [this](int a, int b) { return std::less<const void*>()(identity(a), identity(b)); });
  for (int i = 0; i < count; ++i) lock(order_[i]);
  for (int k = 0; k < count; ++k) MR_TRY(check(k, dtype));
  return ok_status();
}

Result<Tensor*> VariableUpdate::writable(int k) {
  Tensor* tensor = tensors_[k];
  if (tensor == &held_[k]) {
    if (in_snapshot(*tensor)) [[unlikely]]
      MR_TRY(leave_snapshot(k));
  } else if (!tensor->writable()) {
    MR_TRY(check_not_recorded(ctx_));
    MR_TRY_ASSIGN(*tensor, in_snapshot(*tensor) && device_engine(ctx_) == nullptr
                               ? SnapshotCopy::make(*tensor, ctx_.device().allocator())
                               : clone_on_device(ctx_, *tensor));
  }
  return tensor;
}

// The first writer copies; those who come meanwhile find the copy.
Status VariableUpdate::leave_snapshot(int k) {
  MR_TRY(check_not_recorded(ctx_));
  RefCell& cell = ctx_.input_ref(k);
  MutexLock lock(cell.mu);
  if (in_snapshot(cell.tensor)) {
    MR_TRY_ASSIGN(cell.tensor, device_engine(ctx_) == nullptr
                                   ? SnapshotCopy::make(cell.tensor, ctx_.device().allocator())
                                   : clone_on_device(ctx_, cell.tensor));
  }
  if (cell.tensor.dtype() != held_[k].dtype() || cell.tensor.shape() != held_[k].shape()) {
    return aborted("the variable '", cell.name, "' was assigned another shape during an update");
  }
  held_[k] = cell.tensor;
  return ok_status();
}

void VariableUpdate::forward() {
  if (ctx_.num_outputs() > 0) ctx_.set_output_ref(0, Ref<RefCell>(&ctx_.input_ref(0)));
}

Status check_divisors(const Tensor& updates) {
  if (!kIntegers.contains(updates.dtype())) return ok_status();
  return dispatch<IntegerTypes>(updates.dtype(), [&]<class T>() -> Status {
    const std::span<const T> data = updates.data<T>();
    if (std::find(data.begin(), data.end(), T{0}) == data.end()) return ok_status();
    return invalid_argument("Integer division by zero");
  });
}

}  // namespace millrace
