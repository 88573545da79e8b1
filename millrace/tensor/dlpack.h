#pragma once

#include <cstdint>

#include "millrace/base/status.h"
#include "millrace/tensor/tensor.h"

// Tensors in and out of other libraries of the same process without a copy. The structures are
// those of DLPack's unversioned ABI (0.8 and before), which NumPy, PyTorch, JAX and CuPy exchange
// under
// __dlpack__; their layout must not change.

namespace millrace {

enum DLDeviceType : int32_t {
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3,
  kDLOpenCL = 4,
  kDLVulkan = 7,
  kDLMetal = 8,
  kDLVPI = 9,
  kDLROCM = 10,
  kDLROCMHost = 11,
  kDLExtDev = 12,
  kDLCUDAManaged = 13,
  kDLOneAPI = 14,
  kDLWebGPU = 15,
  kDLHexagon = 16,
};

struct DLDevice {
  int32_t device_type;  // a DLDeviceType, or a number newer than this list
  int32_t device_id;
};

enum DLDataTypeCode : uint8_t {
  kDLInt = 0,
  kDLUInt = 1,
  kDLFloat = 2,
  kDLOpaqueHandle = 3,
  kDLBfloat = 4,
  kDLComplex = 5,
  kDLBool = 6,
};

struct DLDataType {
  uint8_t code;  // a DLDataTypeCode, or a number newer than this list
  uint8_t bits;
  uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null means compact row-major
  uint64_t byte_offset;
};

struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);  // may be null
};

// A tensor over the memory of `managed`, borrowed: it is never written. Compact, aligned input is
// shared and its deleter called when the last reference goes; other input is copied and its deleter
// called at once. On an error the caller still owns `managed`. INVALID_ARGUMENT for null pointers
// and negative or overflowing sizes, UNIMPLEMENTED for devices other than the CPU and types we
// lack.
Result<Tensor> from_dlpack(DLManagedTensor* managed);

// A view of the tensor that keeps its buffer alive until the deleter is called, by its consumer.
// UNIMPLEMENTED for types that DLPack lacks, INVALID_ARGUMENT for a tensor outside host memory.
Result<DLManagedTensor*> to_dlpack(const Tensor& tensor);

}  // namespace millrace
