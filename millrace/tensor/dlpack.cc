#include "millrace/tensor/dlpack.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <string_view>

namespace millrace {
namespace {

static_assert(sizeof(DLTensor) == 48 && sizeof(DLManagedTensor) == 64);

struct TypeRow {
  DType dtype;
  uint8_t code;
  uint8_t bits;
};

constexpr TypeRow kTypes[] = {
    {DType::kFloat, kDLFloat, 32},       {DType::kDouble, kDLFloat, 64},
    {DType::kHalf, kDLFloat, 16},        {DType::kBFloat16, kDLBfloat, 16},
    {DType::kInt8, kDLInt, 8},           {DType::kInt16, kDLInt, 16},
    {DType::kInt32, kDLInt, 32},         {DType::kInt64, kDLInt, 64},
    {DType::kUInt8, kDLUInt, 8},         {DType::kUInt16, kDLUInt, 16},
    {DType::kUInt32, kDLUInt, 32},       {DType::kUInt64, kDLUInt, 64},
    {DType::kComplex64, kDLComplex, 64}, {DType::kComplex128, kDLComplex, 128},
    {DType::kBool, kDLBool, 8},
};

Result<DType> dtype_from_dlpack(DLDataType type) {
  for (const TypeRow& row : kTypes) {
    if (row.code == type.code && row.bits == type.bits && type.lanes == 1) return row.dtype;
  }
  return unimplemented("DLPack type (code ", type.code, ", bits ", type.bits, ", lanes ",
                       type.lanes, ") has no dtype here");
}

std::string device_name(DLDevice device) {
  constexpr std::string_view kNames[] = {
      "",    "CPU",  "CUDA",     "CUDAHost", "OpenCL",      "",       "",       "Vulkan", "Metal",
      "VPI", "ROCM", "ROCMHost", "ExtDev",   "CUDAManaged", "OneAPI", "WebGPU", "Hexagon"};
  const auto type = static_cast<size_t>(static_cast<uint32_t>(device.device_type));
  const std::string_view name = type < std::size(kNames) ? kNames[type] : "";
  return name.empty() ? str_cat("device type ", device.device_type, ':', device.device_id)
                      : str_cat(name, ':', device.device_id);
}

bool is_compact(const DLTensor& tensor, const Shape& shape) {
  if (tensor.strides == nullptr) return true;
  int64_t expected = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape.dim(i) != 1 && tensor.strides[i] != expected) return false;
    expected *= shape.dim(i);
  }
  return true;
}

// The distance of every element from the first must be a number of bytes that 63 bits can count.
Status check_strides(const DLTensor& tensor, const Shape& shape, size_t element) {
  int64_t reach = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    int64_t span;
    const bool overflow =
        tensor.strides[i] == std::numeric_limits<int64_t>::min() ||
        __builtin_mul_overflow(std::abs(tensor.strides[i]), static_cast<int64_t>(element), &span) ||
        __builtin_mul_overflow(span, shape.dim(i) - 1, &span) ||
        __builtin_add_overflow(reach, span, &reach);
    if (overflow) {
      return invalid_argument("stride ", tensor.strides[i], " of dimension ", i,
                              " of a DLPack tensor of shape ", shape, " overflows");
    }
  }
  return ok_status();
}

// Copies a strided array of `shape`, all sizes positive, in row-major order.
void copy_strided(const char* from, const DLTensor& tensor, const Shape& shape, size_t element,
                  char* to) {
  int64_t index[Shape::kMaxRank] = {};
  const auto size = static_cast<int64_t>(element);
  for (int64_t n = shape.num_elements(); n > 0; --n) {
    std::memcpy(to, from, element);
    to += element;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      from += tensor.strides[axis] * size;
      if (++index[axis] < shape.dim(axis)) break;
      from -= tensor.strides[axis] * size * shape.dim(axis);
      index[axis] = 0;
    }
  }
}

void release(DLManagedTensor* managed) {
  if (managed->deleter != nullptr) managed->deleter(managed);
}

// An exported view and what it points into.
struct Export {
  DLManagedTensor managed;
  Tensor tensor;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
};

}  // namespace

Result<Tensor> from_dlpack(DLManagedTensor* managed) {
  if (managed == nullptr) return invalid_argument("expected a DLPack tensor, got a null pointer");
  const DLTensor& tensor = managed->dl_tensor;
  if (tensor.device.device_type != kDLCPU) {
    return unimplemented("DLPack tensors must be in CPU memory, got one on ",
                         device_name(tensor.device));
  }
  MR_TRY_ASSIGN(const DType dtype, dtype_from_dlpack(tensor.dtype));
  if (tensor.ndim < 0 || tensor.ndim > Shape::kMaxRank ||
      (tensor.ndim > 0 && tensor.shape == nullptr)) {
    return invalid_argument("a DLPack tensor must have a shape of 0 to ", Shape::kMaxRank,
                            " dimensions, got ", tensor.ndim, " dimensions",
                            tensor.shape == nullptr ? " and no shape" : "");
  }
  MR_TRY_ASSIGN(Shape shape, Shape::make({tensor.shape, static_cast<size_t>(tensor.ndim)}));
  const size_t element = dtype_size(dtype);
  if (shape.num_elements() == 0) {
    MR_TRY_ASSIGN(Tensor empty, Tensor::allocate(dtype, std::move(shape)));
    release(managed);
    return empty;
  }
  size_t bytes;
  if (__builtin_mul_overflow(static_cast<size_t>(shape.num_elements()), element, &bytes) ||
      bytes > static_cast<size_t>(std::numeric_limits<int64_t>::max())) {
    return invalid_argument("a DLPack tensor of ", dtype, ' ', shape, " is too large");
  }
  if (tensor.data == nullptr) {
    return invalid_argument("a DLPack tensor of shape ", shape, " must have data, got null");
  }
  const char* const data = static_cast<const char*>(tensor.data) + tensor.byte_offset;
  const size_t alignment = std::min<size_t>(element, 8);
  const bool aligned = reinterpret_cast<uintptr_t>(data) % alignment == 0;
  if (is_compact(tensor, shape)) {
    if (aligned) {
      Ref<Buffer> buffer = Buffer::borrow(data, bytes, [managed] { release(managed); });
      return Tensor(dtype, shape, std::move(buffer));
    }
    MR_TRY_ASSIGN(Tensor copy, Tensor::allocate(dtype, std::move(shape)));
    std::memcpy(copy.mutable_raw(), data, bytes);
    release(managed);
    return copy;
  }
  MR_TRY(check_strides(tensor, shape, element));
  MR_TRY_ASSIGN(Tensor copy, Tensor::allocate(dtype, shape));
  copy_strided(data, tensor, shape, element, static_cast<char*>(copy.mutable_raw()));
  release(managed);
  return copy;
}

Result<DLManagedTensor*> to_dlpack(const Tensor& tensor) {
  const TypeRow* type = nullptr;
  for (const TypeRow& row : kTypes) {
    if (row.dtype == tensor.dtype()) type = &row;
  }
  if (type == nullptr) return unimplemented("DLPack has no type for ", tensor.dtype());
  if (tensor.buffer() && tensor.buffer()->space() == MemorySpace::kDevice) {
    return invalid_argument("a tensor in device memory cannot be given out as a CPU tensor");
  }
  const std::span<const int64_t> dims = tensor.shape().dims();
  auto* const view = new Export{{}, tensor, {dims.begin(), dims.end()}, {}};
  view->strides.resize(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    view->strides[i] = stride;
    stride *= std::max<int64_t>(dims[i], 1);
  }
  view->managed.dl_tensor = {.data = view->tensor.mutable_raw(),
                             .device = {kDLCPU, 0},
                             .ndim = tensor.rank(),
                             .dtype = {type->code, type->bits, 1},
                             .shape = view->shape.data(),
                             .strides = view->strides.data(),
                             .byte_offset = 0};
  view->managed.manager_ctx = view;
  view->managed.deleter = [](DLManagedTensor* self) {
    delete static_cast<Export*>(self->manager_ctx);
  };
  return &view->managed;
}

}  // namespace millrace
