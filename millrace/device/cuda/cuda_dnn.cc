#include "millrace/device/cuda/cuda_dnn.h"

#include <cudnn.h>

#include <array>
#include <map>

#include "millrace/base/env.h"
#include "millrace/base/log.h"
#include "millrace/base/mutex.h"
#include "millrace/device/cuda/cuda_blas.h"
#include "millrace/device/cuda/cuda_context.h"

namespace millrace {
namespace {

Status dnn_status(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return ok_status();
  std::string_view name = call;
  name = name.substr(0, name.find('('));
  // Of the codes of one kind the first digit is the same.
  if (static_cast<int>(status) / 1000 == static_cast<int>(CUDNN_STATUS_NOT_SUPPORTED) / 1000) {
    return unimplemented(name, ": ", cudnnGetErrorString(status));
  }
  return internal(name, ": ", cudnnGetErrorString(status));
}
#define MR_DNN_TRY(call) MR_TRY(dnn_status((call), #call))

// The most memory that an algorithm may use besides its tensors.
constexpr size_t kMostWorkspace = size_t{1} << 30;

Result<cudnnDataType_t> type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat:
      return CUDNN_DATA_FLOAT;
    case DType::kDouble:
      return CUDNN_DATA_DOUBLE;
    case DType::kHalf:
      return CUDNN_DATA_HALF;
    case DType::kBFloat16:
      return CUDNN_DATA_BFLOAT16;
    default:
      return unimplemented("convolutions of ", dtype);
  }
}

// One convolution, with the algorithm that was the quickest when it was measured. Is not given
// back.
struct Plan {
  cudnnTensorDescriptor_t image = nullptr, output = nullptr;
  cudnnFilterDescriptor_t filter = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
  int algorithm = 0;
  size_t workspace = 0;
  Status unusable;  // why there is none
};

using Key = std::array<int64_t, 20>;

struct Library {
  Mutex mu;
  cudnnHandle_t handle MR_GUARDED_BY(mu) = nullptr;
  std::map<Key, Plan> plans MR_GUARDED_BY(mu);
};

Library& library_of(int ordinal) {
  static Mutex& mu = *new Mutex;
  static auto& all = *new std::map<int, Library*>;
  MutexLock lock(mu);
  Library*& found = all[ordinal];
  if (found == nullptr) found = new Library;
  return *found;
}

Status describe(DType dtype, const CudaConvolution& s, Plan& plan) {
  MR_TRY_ASSIGN(const cudnnDataType_t type, type_of(dtype));
  const auto format = s.channels_last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
  const auto i = [](int64_t n) { return static_cast<int>(n); };
  for (int64_t n : {s.batch, s.in_channels, s.out_channels, s.input[0], s.input[1]}) {
    if (n > INT32_MAX) return unimplemented("a convolution of so large a size");
  }
  MR_DNN_TRY(cudnnCreateTensorDescriptor(&plan.image));
  MR_DNN_TRY(cudnnCreateTensorDescriptor(&plan.output));
  MR_DNN_TRY(cudnnCreateFilterDescriptor(&plan.filter));
  MR_DNN_TRY(cudnnCreateConvolutionDescriptor(&plan.convolution));
  MR_DNN_TRY(cudnnSetTensor4dDescriptor(plan.image, format, type, i(s.batch), i(s.in_channels),
                                        i(s.input[0]), i(s.input[1])));
  MR_DNN_TRY(cudnnSetTensor4dDescriptor(plan.output, format, type, i(s.batch), i(s.out_channels),
                                        i(s.output[0]), i(s.output[1])));
  MR_DNN_TRY(cudnnSetFilter4dDescriptor(plan.filter, type, format, i(s.out_channels),
                                        i(s.in_channels), i(s.window[0]), i(s.window[1])));
  MR_DNN_TRY(cudnnSetConvolution2dDescriptor(
      plan.convolution, i(s.padding[0]), i(s.padding[1]), i(s.stride[0]), i(s.stride[1]),
      i(s.dilation[0]), i(s.dilation[1]), CUDNN_CROSS_CORRELATION,
      dtype == DType::kDouble ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT));
  const bool exact = dtype == DType::kFloat && !cuda_tf32();
  const bool half = dtype == DType::kHalf || dtype == DType::kBFloat16;
  MR_DNN_TRY(cudnnSetConvolutionMathType(plan.convolution, exact  ? CUDNN_FMA_MATH
                                                           : half ? CUDNN_TENSOR_OP_MATH
                                                                  : CUDNN_DEFAULT_MATH));
  return ok_status();
}

// Of what cuDNN measured or proposes, in order, the first that can be used.
template <class Performance>
Status choose(const Performance* found, int count, bool deterministic, Plan& plan) {
  for (int i = 0; i < count; ++i) {
    if (found[i].status != CUDNN_STATUS_SUCCESS || found[i].memory > kMostWorkspace) continue;
    if (deterministic && found[i].determinism != CUDNN_DETERMINISTIC) continue;
    plan.algorithm = static_cast<int>(found[i].algo);
    plan.workspace = found[i].memory;
    cudnnSetConvolutionMathType(plan.convolution, found[i].mathType);
    return ok_status();
  }
  return unimplemented("cuDNN has no algorithm for this convolution");
}

// Sums in a fixed order unless MILLRACE_CUDA_NONDETERMINISTIC=1 in the environment.
bool deterministic() {
  static const bool on = env_string("MILLRACE_CUDA_NONDETERMINISTIC") != "1";
  return on;
}

// Measures the algorithms on the tensors at hand: what they write is written again.
Status measure(const KernelContext& ctx, cudnnHandle_t handle, CudaConvolutionResult result,
               const void* image, const void* filter, const void* output, void* to, Plan& plan) {
  constexpr int kMost = 16;
  Tensor space;
  size_t bytes = kMostWorkspace;
  while (true) {
    Result<Tensor> got = Tensor::allocate(DType::kUInt8, Shape{static_cast<int64_t>(bytes)},
                                          ctx.device().allocator());
    if (got.ok()) {
      space = std::move(*got);
      break;
    }
    bytes /= 4;
    if (bytes < (1 << 20)) return got.status();
  }
  int count = 0;
  void* const work = space.mutable_raw();
  const bool fixed = deterministic();
  switch (result) {
    case CudaConvolutionResult::kOutput: {
      cudnnConvolutionFwdAlgoPerf_t found[kMost];
      MR_DNN_TRY(cudnnFindConvolutionForwardAlgorithmEx(handle, plan.image, image, plan.filter,
                                                        filter, plan.convolution, plan.output, to,
                                                        kMost, &count, found, work, bytes));
      return choose(found, count, fixed, plan);
    }
    case CudaConvolutionResult::kInput: {
      cudnnConvolutionBwdDataAlgoPerf_t found[kMost];
      MR_DNN_TRY(cudnnFindConvolutionBackwardDataAlgorithmEx(
          handle, plan.filter, filter, plan.output, output, plan.convolution, plan.image, to, kMost,
          &count, found, work, bytes));
      return choose(found, count, fixed, plan);
    }
    case CudaConvolutionResult::kFilter: {
      cudnnConvolutionBwdFilterAlgoPerf_t found[kMost];
      MR_DNN_TRY(cudnnFindConvolutionBackwardFilterAlgorithmEx(
          handle, plan.image, image, plan.output, output, plan.convolution, plan.filter, to, kMost,
          &count, found, work, bytes));
      return choose(found, count, fixed, plan);
    }
  }
  return ok_status();
}

}  // namespace

Status cuda_convolve(const KernelContext& ctx, DType dtype, CudaConvolutionResult result,
                     const CudaConvolution& s, const void* image, const void* filter,
                     const void* output, void* to) {
  MR_TRY_ASSIGN(cudaStream_t stream, cuda_stream(ctx));
  Library& library = library_of(static_cast<CudaStream*>(ctx.stream())->ordinal());
  // The handle serves one thread at a time.
  MutexLock lock(library.mu);
  if (library.handle == nullptr) MR_DNN_TRY(cudnnCreate(&library.handle));
  MR_DNN_TRY(cudnnSetStream(library.handle, stream));
  const Key key = {static_cast<int64_t>(dtype),
                   static_cast<int64_t>(result),
                   s.channels_last,
                   s.batch,
                   s.in_channels,
                   s.out_channels,
                   s.input[0],
                   s.input[1],
                   s.window[0],
                   s.window[1],
                   s.stride[0],
                   s.stride[1],
                   s.dilation[0],
                   s.dilation[1],
                   s.padding[0],
                   s.padding[1],
                   s.output[0],
                   s.output[1]};
  auto place = library.plans.find(key);
  if (place == library.plans.end()) {
    Plan plan;
    plan.unusable = describe(dtype, s, plan);
    if (plan.unusable.ok()) {
      plan.unusable = measure(ctx, library.handle, result, image, filter, output, to, plan);
    }
    if (plan.unusable.code() != Code::kUnimplemented) MR_TRY(plan.unusable);
    place = library.plans.emplace(key, plan).first;
  }
  const Plan& plan = place->second;
  MR_TRY(plan.unusable);
  Tensor space;
  void* work = nullptr;
  if (plan.workspace > 0) {
    MR_TRY_ASSIGN(space,
                  Tensor::allocate(DType::kUInt8, Shape{static_cast<int64_t>(plan.workspace)},
                                   ctx.device().allocator()));
    work = space.mutable_raw();
  }
  const double one_double = 1, zero_double = 0;
  const float one_float = 1, zero_float = 0;
  const bool wide = dtype == DType::kDouble;
  const void* const one = wide ? static_cast<const void*>(&one_double) : &one_float;
  const void* const zero = wide ? static_cast<const void*>(&zero_double) : &zero_float;
  switch (result) {
    case CudaConvolutionResult::kOutput:
      MR_DNN_TRY(cudnnConvolutionForward(library.handle, one, plan.image, image, plan.filter,
                                         filter, plan.convolution,
                                         static_cast<cudnnConvolutionFwdAlgo_t>(plan.algorithm),
                                         work, plan.workspace, zero, plan.output, to));
      break;
    case CudaConvolutionResult::kInput:
      MR_DNN_TRY(cudnnConvolutionBackwardData(
          library.handle, one, plan.filter, filter, plan.output, output, plan.convolution,
          static_cast<cudnnConvolutionBwdDataAlgo_t>(plan.algorithm), work, plan.workspace, zero,
          plan.image, to));
      break;
    case CudaConvolutionResult::kFilter:
      MR_DNN_TRY(cudnnConvolutionBackwardFilter(
          library.handle, one, plan.image, image, plan.output, output, plan.convolution,
          static_cast<cudnnConvolutionBwdFilterAlgo_t>(plan.algorithm), work, plan.workspace, zero,
          plan.filter, to));
      break;
  }
  return launched(stream);
}

}  // namespace millrace
