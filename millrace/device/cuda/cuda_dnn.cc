#include "millrace/device/cuda/cuda_dnn.h"

#include <cudnn.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "millrace/base/env.h"
#include "millrace/base/mutex.h"
#include "millrace/device/cuda/cuda_blas.h"
#include "millrace/device/cuda/cuda_context.h"
#include "millrace/device/cuda/cuda_measure.h"

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
constexpr int64_t kMostWorkspace = int64_t{1} << 30;
// No kernel asks for tensors that are aligned to more bytes.
constexpr int64_t kMostAlignment = 16;

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

// A descriptor of cuDNN's graph interface; given back with this.
class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(Descriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Descriptor() {
    if (raw_ != nullptr) static_cast<void>(cudnnBackendDestroyDescriptor(raw_));
  }

  static Result<Descriptor> make(cudnnBackendDescriptorType_t type) {
    Descriptor made;
    MR_DNN_TRY(cudnnBackendCreateDescriptor(type, &made.raw_));
    return made;
  }
  Status set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
             const void* values) {
    MR_DNN_TRY(cudnnBackendSetAttribute(raw_, name, type, count, values));
    return ok_status();
  }
  template <class T>
  Status set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, T value) {
    return set(name, type, 1, &value);
  }
  Status set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.raw_);
  }
  Status set(cudnnBackendAttributeName_t name, std::span<const int64_t> values) {
    return set(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
  }
  // How many of up to `most` there are.
  Result<int64_t> get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                      int64_t most, void* values) const {
    int64_t count = 0;
    MR_DNN_TRY(cudnnBackendGetAttribute(raw_, name, type, most, &count, values));
    return count;
  }
  Status finish() {
    MR_DNN_TRY(cudnnBackendFinalize(raw_));
    return ok_status();
  }
  cudnnBackendDescriptor_t raw() const { return raw_; }

 private:
  cudnnBackendDescriptor_t raw_ = nullptr;
};

// One convolution, by the plan that was the quickest when they were measured.
struct Plan {
  Descriptor plan;
  int64_t workspace = 0;
  Status unusable;  // why there is none
};

// The numbers by which plans are told what lies where.
enum Place : int64_t { kImage = 1, kFilter = 2, kOutput = 3 };

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

// A tensor of images, or of filters, for which channels are those of the image.
Result<Descriptor> tensor(Place place, DType dtype, bool channels_last, int64_t alignment,
                          int64_t n, int64_t channels, const int64_t* size) {
  MR_TRY_ASSIGN(const cudnnDataType_t type, type_of(dtype));
  MR_TRY_ASSIGN(Descriptor out, Descriptor::make(CUDNN_BACKEND_TENSOR_DESCRIPTOR));
  const int64_t dims[4] = {n, channels, size[0], size[1]};
  const int64_t pixels = size[0] * size[1];
  const int64_t last[4] = {pixels * channels, 1, size[1] * channels, channels};
  const int64_t first[4] = {pixels * channels, pixels, size[1], 1};
  MR_TRY(out.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type));
  MR_TRY(out.set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims));
  MR_TRY(out.set(CUDNN_ATTR_TENSOR_STRIDES, channels_last ? last : first));
  MR_TRY(out.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, int64_t{place}));
  MR_TRY(out.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment));
  MR_TRY(out.finish());
  return out;
}

// The graph of one operation.
Result<Descriptor> graph_of(cudnnHandle_t handle, DType dtype, CudaConvolutionResult result,
                            const CudaConvolution& s, int64_t alignment) {
  const auto make = [&](Place place, int64_t n, int64_t channels, const int64_t* size) {
    return tensor(place, dtype, s.channels_last, alignment, n, channels, size);
  };
  MR_TRY_ASSIGN(const Descriptor image, make(kImage, s.batch, s.in_channels, s.input));
  MR_TRY_ASSIGN(const Descriptor filter, make(kFilter, s.out_channels, s.in_channels, s.window));
  MR_TRY_ASSIGN(const Descriptor output, make(kOutput, s.batch, s.out_channels, s.output));
  MR_TRY_ASSIGN(Descriptor convolution, Descriptor::make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR));
  const bool wide = dtype == DType::kDouble;
  MR_TRY(convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
                         wide ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT));
  MR_TRY(convolution.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                         CUDNN_CROSS_CORRELATION));
  MR_TRY(convolution.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, int64_t{2}));
  MR_TRY(convolution.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, s.padding));
  MR_TRY(convolution.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, s.padding));
  MR_TRY(convolution.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, s.dilation));
  MR_TRY(convolution.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, s.stride));
  MR_TRY(convolution.finish());
  struct Names {
    cudnnBackendDescriptorType_t operation;
    cudnnBackendAttributeName_t convolution, image, filter, output, alpha, beta;
  };
  static constexpr Names kNames[] = {
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};
  const Names& names = kNames[static_cast<int>(result)];
  MR_TRY_ASSIGN(Descriptor operation, Descriptor::make(names.operation));
  MR_TRY(operation.set(names.convolution, convolution));
  MR_TRY(operation.set(names.image, image));
  MR_TRY(operation.set(names.filter, filter));
  MR_TRY(operation.set(names.output, output));
  MR_TRY(wide ? operation.set(names.alpha, CUDNN_TYPE_DOUBLE, 1.0)
              : operation.set(names.alpha, CUDNN_TYPE_FLOAT, 1.0F));
  MR_TRY(wide ? operation.set(names.beta, CUDNN_TYPE_DOUBLE, 0.0)
              : operation.set(names.beta, CUDNN_TYPE_FLOAT, 0.0F));
  MR_TRY(operation.finish());
  MR_TRY_ASSIGN(Descriptor graph, Descriptor::make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
  MR_TRY(graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle));
  MR_TRY(graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation));
  MR_TRY(graph.finish());
  return graph;
}

// Sums in a fixed order unless MILLRACE_CUDA_NONDETERMINISTIC=1 in the environment.
bool deterministic() {
  static const bool on = env_string("MILLRACE_CUDA_NONDETERMINISTIC") != "1";
  return on;
}

// Whether a configuration computes as precisely, and as repeatably, as it must.
Result<bool> allowed(const Descriptor& config, DType dtype) {
  MR_TRY_ASSIGN(const Descriptor engine, Descriptor::make(CUDNN_BACKEND_ENGINE_DESCRIPTOR));
  cudnnBackendDescriptor_t raw = engine.raw();
  MR_TRY(config.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw).status());
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  MR_TRY_ASSIGN(const int64_t count,
                engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                           CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes));
  for (int64_t i = 0; i < count; ++i) {
    if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC && deterministic()) return false;
    if (dtype != DType::kFloat) continue;
    if (notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) return false;
    if (notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && !cuda_tf32()) return false;
  }
  return true;
}

// Plans that cuDNN proposes, those first that it takes for quicker.
Result<std::vector<Plan>> proposals(cudnnHandle_t handle, DType dtype, const Descriptor& graph) {
  // Of all that it proposes so many are made and measured.
  constexpr size_t kMost = 12;
  constexpr int64_t kAsked = 40;
  std::vector<Plan> plans;
  for (cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    if (!plans.empty()) break;
    MR_TRY_ASSIGN(Descriptor heuristics, Descriptor::make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
    MR_TRY(heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph));
    MR_TRY(heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode));
    if (!heuristics.finish().ok()) continue;
    std::vector<Descriptor> configs;
    std::vector<cudnnBackendDescriptor_t> raw;
    for (int64_t i = 0; i < kAsked; ++i) {
      MR_TRY_ASSIGN(Descriptor config, Descriptor::make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
      raw.push_back(config.raw());
      configs.push_back(std::move(config));
    }
    MR_TRY_ASSIGN(const int64_t count,
                  heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 kAsked, raw.data()));
    for (int64_t i = 0; i < std::min(count, kAsked) && plans.size() < kMost; ++i) {
      const Descriptor& config = configs[static_cast<size_t>(i)];
      const Result<bool> fits = allowed(config, dtype);
      if (!fits.ok() || !*fits) continue;
      Plan plan;
      MR_TRY_ASSIGN(plan.plan, Descriptor::make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR));
      MR_TRY(plan.plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle));
      MR_TRY(plan.plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config));
      if (!plan.plan.finish().ok()) continue;  // not for these sizes
      MR_TRY(
          plan.plan
              .get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &plan.workspace)
              .status());
      if (plan.workspace <= kMostWorkspace) plans.push_back(std::move(plan));
    }
  }
  if (plans.empty()) return unimplemented("cuDNN has no algorithm for this convolution");
  return plans;
}

// What lies where, for a plan.
struct Pointers {
  const void *image, *filter, *output;
};

Status execute(cudnnHandle_t handle, const Plan& plan, const Pointers& pointers, void* workspace) {
  MR_TRY_ASSIGN(Descriptor pack, Descriptor::make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
  const int64_t places[3] = {kImage, kFilter, kOutput};
  const void* const data[3] = {pointers.image, pointers.filter, pointers.output};
  MR_TRY(pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, places));
  MR_TRY(pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, data));
  MR_TRY(pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace));
  MR_TRY(pack.finish());
  MR_DNN_TRY(cudnnBackendExecute(handle, plan.plan.raw(), pack.raw()));
  return ok_status();
}

Result<Tensor> bytes_for(const KernelContext& ctx, int64_t bytes) {
  return Tensor::allocate(DType::kUInt8, Shape{bytes}, ctx.device().allocator());
}

// The quickest plan, measured on the tensors at hand: what they write is written again.
Result<Plan> quickest(const KernelContext& ctx, cudnnHandle_t handle, cudaStream_t stream,
                      std::vector<Plan> plans, const Pointers& pointers) {
  const auto measure = [&](const Plan& plan) -> Result<float> {
    MR_TRY_ASSIGN(Tensor space, bytes_for(ctx, plan.workspace));
    return cuda_milliseconds(stream,
                             [&] { return execute(handle, plan, pointers, space.mutable_raw()); });
  };
  Plan* best = nullptr;
  float least = std::numeric_limits<float>::infinity();
  Status error = unimplemented("cuDNN has no algorithm for this convolution");
  for (Plan& plan : plans) {
    const Result<float> took = measure(plan);
    if (!took.ok()) error = took.status();
    if (!took.ok() || *took >= least) continue;
    least = *took;
    best = &plan;
  }
  if (best == nullptr) return error;
  return std::move(*best);
}

}  // namespace

Status cuda_convolve(const KernelContext& ctx, DType dtype, CudaConvolutionResult result,
                     const CudaConvolution& s, const void* image, const void* filter,
                     const void* output, void* to) {
  MR_TRY_ASSIGN(cudaStream_t stream, cuda_stream(ctx));
  Pointers pointers = {image, filter, output};
  (result == CudaConvolutionResult::kOutput  ? pointers.output
   : result == CudaConvolutionResult::kInput ? pointers.image
                                             : pointers.filter) = to;
  int64_t alignment = kMostAlignment;
  for (const void* data : {pointers.image, pointers.filter, pointers.output}) {
    while (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(alignment) != 0) {
      alignment /= 2;
    }
  }
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
                   s.output[1],
                   alignment};
  auto place = library.plans.find(key);
  if (place == library.plans.end()) {
    MR_TRY_ASSIGN(const bool recorded, is_recorded(stream));
    if (recorded) return unavailable("no algorithm was chosen yet");
    const auto choose = [&]() MR_NO_THREAD_SAFETY_ANALYSIS -> Result<Plan> {  // the lock is held
      MR_TRY_ASSIGN(const Descriptor graph, graph_of(library.handle, dtype, result, s, alignment));
      MR_TRY_ASSIGN(std::vector<Plan> plans, proposals(library.handle, dtype, graph));
      return quickest(ctx, library.handle, stream, std::move(plans), pointers);
    };
    Result<Plan> chosen = choose();
    Plan plan;
    if (chosen.ok()) {
      plan = std::move(*chosen);
    } else {
      plan.unusable = chosen.status();
      if (plan.unusable.code() != Code::kUnimplemented) return plan.unusable;
    }
    place = library.plans.emplace(key, std::move(plan)).first;
  }
  const Plan& plan = place->second;
  MR_TRY(plan.unusable);
  MR_TRY_ASSIGN(Tensor space, bytes_for(ctx, plan.workspace));
  MR_TRY(execute(library.handle, plan, pointers, space.mutable_raw()));
  return launched(stream);
}

}  // namespace millrace
