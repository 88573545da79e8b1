#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "millrace/base/ref.h"
#include "millrace/kernel/value.h"
#include "millrace/tensor/tensor.h"

namespace millrace {
class Device;
}

namespace millrace::eager {

class EagerContext;
class Record;

// A value that is there: what eager code holds. A tensor, the device whose memory it lies in, and
// its place on tapes. Immutable once its maker has let go of it, so any number of threads may hold
// it; the device (and the context that has it) outlives it.
class EagerTensor final : public RefCounted {
 public:
  EagerTensor(Tensor tensor, Device& device)
      : value_(Value::of(std::move(tensor))), device_(&device) {}
  // To be filled in by a kernel.
  explicit EagerTensor(Device& device) : device_(&device) {}

  const Tensor& tensor() const { return value_.tensor; }
  DType dtype() const { return value_.tensor.dtype(); }
  const Shape& shape() const { return value_.tensor.shape(); }
  // The one whose memory holds the elements; the host's CPU for elements that only the host reads.
  Device& device() const { return *device_; }

  // Its place on tapes: which output of which record it is. Null: no tape has seen it.
  Record* record() const { return record_.load(std::memory_order_acquire); }
  int output() const { return output_; }

 protected:
  ~EagerTensor() override;

 private:
  friend class EagerContext;
  friend class Record;

  Value value_;
  Device* device_;
  std::atomic<Record*> record_{nullptr};  // owns one count
  int32_t output_ = 0;
};

using TensorRef = Ref<EagerTensor>;

// The gradient of a tensor: one of its shape, or rows of it (see Gradient in graph/gradient.h), or
// none.
struct EagerGradient {
  TensorRef values;   // null: none
  TensorRef indices;  // not null: rows
  TensorRef dense_shape;
  bool valid() const { return static_cast<bool>(values); }
  bool is_slices() const { return static_cast<bool>(indices); }
};

}  // namespace millrace::eager
