// libmillrace_cuda: the engine of CUDA devices, and the kernels that are shared with the CPU.

#include <string>
#include <vector>

#include "millrace/device/cuda/cuda_blas.h"
#include "millrace/device/cuda/cuda_device.h"
#include "millrace/device/cuda/cuda_dnn.h"
#include "millrace/device/gpu_library.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/device_array.cuh"
#include "millrace/ops/math/device_fused.cuh"
#include "millrace/ops/math/elementwise_table.cuh"
#include "millrace/ops/nn/device_nn.cuh"
#include "millrace/ops/reduce/device_reduce.cuh"
#include "millrace/ops/register_ops.h"
#include "millrace/ops/training/device_apply.cuh"
#include "millrace/ops/training/optimizer_loops.h"

namespace millrace {
namespace {

template <class T, int kWhat>
struct Finder {
  const T* x;
  uint64_t* place;
  __device__ __forceinline__ void operator()(int64_t i) const {
    if (kWhat == 0 ? x[i] == 0 : x[i] < T(0)) report_finding(place, static_cast<uint64_t>(i));
  }
};

// What integers as divisor or exponent there is no answer for ends the step; see check_operand().
Status check_operand_on_device(KernelContext& ctx, std::string_view op, DType dtype, const void* y,
                               int64_t n) {
  const bool divides = op == "Div" || op == "FloorDiv" || op == "TruncateDiv" || op == "FloorMod" ||
                       op == "Mod" || op == "TruncateMod";
  if (!kIntegers.contains(dtype) || n == 0 || (!divides && op != "Pow")) return ok_status();
  MR_TRY_ASSIGN(
      uint64_t* const place, expect_finding(ctx, [divides](uint64_t) {
        return divides ? invalid_argument("Integer division by zero")
                       : invalid_argument("Integers to negative integer powers are not allowed");
      }));
  return dispatch<IntegerTypes>(dtype, [&]<class T>() -> Status {
    const T* const x = static_cast<const T*>(y);
    return divides ? for_each(ctx, n, Finder<T, 0>{x, place})
                   : for_each(ctx, n, Finder<T, 1>{x, place});
  });
}

class CudaEngine final : public DeviceEngine {
 public:
  Status unary(KernelContext& ctx, std::string_view op, DType dtype, const void* x, void* y,
               int64_t n) override {
    const LaunchUnary run = unary_launches().find(op, dtype);
    if (run == nullptr) return unimplemented(op, " of ", dtype, " on a GPU");
    return run(ctx, x, y, n);
  }

  Status binary(KernelContext& ctx, std::string_view op, DType dtype, Operand a, Operand b, void* z,
                const Shape& shape) override {
    const LaunchBinary run = binary_launches().find(op, dtype);
    if (run == nullptr) return unimplemented(op, " of ", dtype, " on a GPU");
    const int64_t n = shape.num_elements();
    if (n == 0) return ok_status();
    MR_TRY(check_operand_on_device(ctx, op, dtype, b.data, b.shape->num_elements()));
    const Shape* shapes[] = {a.shape, b.shape};
    MR_TRY_ASSIGN(const BroadcastIndex index, BroadcastIndex::make(shapes, shape));
    return run(ctx, index, a.data, b.data, z, n);
  }

  Status select(KernelContext& ctx, size_t size, Operand condition, Operand t, Operand e, void* out,
                const Shape& shape) override {
    const Shape* shapes[] = {condition.shape, t.shape, e.shape};
    MR_TRY_ASSIGN(const BroadcastIndex index, BroadcastIndex::make(shapes, shape));
    return device_select(ctx, size, index, condition.data, t.data, e.data, out,
                         shape.num_elements());
  }

  Status cast(KernelContext& ctx, DType from, DType to, bool truncate, const void* x, void* y,
              int64_t n) override {
    return device_cast(ctx, from, to, truncate, x, y, n);
  }
  Status add_n(KernelContext& ctx, DType dtype, std::span<const void* const> inputs, void* y,
               int64_t n) override {
    return device_add_n(ctx, dtype, inputs, y, n);
  }
  Status strided_copy(const KernelContext& ctx, size_t size, std::span<const int64_t[3]> dims,
                      const void* from, void* to) override {
    return device_strided_copy(ctx, size, dims, from, to);
  }
  Status fill(const KernelContext& ctx, size_t size, const void* value, bool host, void* to,
              int64_t n) override {
    return device_fill(ctx, size, value, host, to, n);
  }
  Status range(KernelContext& ctx, DType dtype, double start, double delta, int64_t int_start,
               int64_t int_delta, void* to, int64_t n) override {
    return device_range(ctx, dtype, start, delta, int_start, int_delta, to, n);
  }
  Status copy(const KernelContext& ctx, const void* from, void* to, size_t bytes) override {
    if (bytes == 0) return ok_status();
    MR_TRY_ASSIGN(cudaStream_t stream, cuda_stream(ctx));
    MR_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
    return ok_status();
  }
  Status reduce(KernelContext& ctx, Reduction kind, DType dtype, const void* x, FoldDims dims,
                void* y) override {
    return device_reduce(ctx, kind, dtype, x, dims, y);
  }
  Status l2_loss(KernelContext& ctx, DType dtype, const void* x, int64_t n, void* y) override {
    return device_l2_loss(ctx, dtype, x, n, y);
  }
  Status arg_reduce(KernelContext& ctx, bool largest, DType dtype, DType index, const void* x,
                    int64_t outer, int64_t n, int64_t inner, void* y) override {
    return device_arg_reduce(ctx, largest, dtype, index, x, outer, n, inner, y);
  }

  Status matmul(KernelContext& ctx, DType dtype, const MatMul& s, const void* a, const void* b,
                void* c) override {
    if (kFloating.contains(dtype)) {
      const Status status = cuda_matmul(ctx, dtype,
                                        {s.m, s.n, s.k, s.transpose_a, s.transpose_b, s.batch,
                                         s.stride_a, s.stride_b, s.stride_c},
                                        a, b, c);
      if (status.code() != Code::kUnimplemented) return status;
    }
    return device_matmul(ctx, dtype, s, a, b, c);
  }

  Status convolve(KernelContext& ctx, DType dtype, Product product, const Convolution& s,
                  const void* image, const void* filter, const void* dy, void* result) override {
    const Status status = convolve_by_library(ctx, dtype, product, s, image, filter, dy, result);
    if (status.code() != Code::kUnimplemented) return status;
    return device_convolve(ctx, dtype, product, s, image, filter, dy, result);
  }

  Status pool(KernelContext& ctx, Pool kind, DType dtype, const Pooling& sizes, const void* x,
              const void* dy, void* y) override {
    return device_pool(ctx, kind, dtype, sizes, x, dy, y);
  }
  Status softmax(KernelContext& ctx, Softmax kind, DType dtype, const void* x, int64_t rows,
                 int64_t n, void* y) override {
    return device_softmax(ctx, kind == Softmax::kLogSoftmax, dtype, x, rows, n, y);
  }
  Status cross_entropy(KernelContext& ctx, DType dtype, DType label, const void* x,
                       const void* labels, int64_t rows, int64_t n, void* loss,
                       void* gradient) override {
    return device_cross_entropy(ctx, dtype, label, x, labels, rows, n, loss, gradient);
  }
  Status apply(KernelContext& ctx, int rule, bool flag, DType dtype, std::span<void* const> slots,
               const void* gradient, std::span<const void* const> scalars, int64_t n) override {
    return device_apply(ctx, rule, flag, dtype, slots, gradient, scalars, n);
  }
  Status random(KernelContext& ctx, Distribution kind, DType dtype, const uint64_t* stream, void* y,
                int64_t n) override {
    return device_random(ctx, kind, dtype, stream, y, n);
  }
  Status gather(KernelContext& ctx, size_t size, DType index, int64_t batch, int64_t outer,
                int64_t count, int64_t run, const void* from, const void* indices, IndexCheck check,
                void* out) override {
    return device_gather(ctx, size, index, batch, outer, count, run, from, indices, check, out);
  }
  Status scatter(KernelContext& ctx, std::string_view op, DType dtype, DType index, int64_t count,
                 int64_t run, const void* from, bool one_row, const void* indices, IndexCheck check,
                 void* to) override {
    const int64_t updates = one_row ? run : count * run;
    if (op == "Div") MR_TRY(check_operand_on_device(ctx, op, dtype, from, updates));
    return device_scatter(ctx, op, dtype, index, count, run, from, one_row, indices, check, to);
  }
  Status one_hot(KernelContext& ctx, size_t size, DType index, const void* indices, int64_t outer,
                 int64_t depth, int64_t inner, const void* on, const void* off,
                 void* out) override {
    return device_one_hot(ctx, size, index, indices, outer, depth, inner, on, off, out);
  }
  Status lrn(KernelContext& ctx, DType dtype, const void* x, const void* y, const void* dy,
             int64_t rows, int64_t channels, int64_t radius, float bias, float alpha, float beta,
             void* out) override {
    return device_lrn(ctx, dtype, x, y, dy, rows, channels, radius, bias, alpha, beta, out);
  }

 private:
  // Our filters are [height, width, in, out], which transposed is what cuDNN wants beside images
  // with channels last; beside others it wants [out, in, height, width].
  static Status to_library(const KernelContext& ctx, size_t size, const Convolution& s,
                           const void* from, void* to) {
    const int64_t pixels = s.axes[0].window * s.axes[1].window;
    if (s.channels_last) {
      return device_strided_copy_2d(ctx, size, pixels * s.in_channels, s.out_channels, from, to);
    }
    const int64_t dims[3][3] = {{s.out_channels, 1, s.in_channels * pixels},
                                {s.in_channels, s.out_channels, pixels},
                                {pixels, s.in_channels * s.out_channels, 1}};
    return device_strided_copy(ctx, size, dims, from, to);
  }
  static Status from_library(const KernelContext& ctx, size_t size, const Convolution& s,
                             const void* from, void* to) {
    const int64_t pixels = s.axes[0].window * s.axes[1].window;
    if (s.channels_last) {
      return device_strided_copy_2d(ctx, size, s.out_channels, pixels * s.in_channels, from, to);
    }
    const int64_t dims[3][3] = {{pixels, 1, s.in_channels * s.out_channels},
                                {s.in_channels, pixels, s.out_channels},
                                {s.out_channels, s.in_channels * pixels, 1}};
    return device_strided_copy(ctx, size, dims, from, to);
  }
  // [a, b] becomes [b, a].
  static Status device_strided_copy_2d(const KernelContext& ctx, size_t size, int64_t a, int64_t b,
                                       const void* from, void* to) {
    return device_transpose(ctx, size, 1, a, b, from, to);
  }

  // Between an image and the same with `before` zeros in front of each axis, cut or filled up to
  // `padded`. Nothing is read or written outside of either.
  static Status move_padded(const KernelContext& ctx, size_t size, const Convolution& s,
                            const int64_t* padded, bool to_padded, const void* from, void* to) {
    int64_t count[2], image_size[2];
    for (int a = 0; a < 2; ++a) {
      image_size[a] = s.axes[a].input;
      count[a] = std::min(s.axes[a].input, padded[a] - s.axes[a].before);
      if (count[a] <= 0) return ok_status();
    }
    const int64_t inner = s.channels_last ? s.in_channels : 1;
    const int64_t outer = s.channels_last ? s.batch : s.batch * s.in_channels;
    const int64_t small[3] = {image_size[0] * image_size[1] * inner, image_size[1] * inner, inner};
    const int64_t big[3] = {padded[0] * padded[1] * inner, padded[1] * inner, inner};
    const int64_t* const source = to_padded ? small : big;
    const int64_t* const target = to_padded ? big : small;
    const int64_t dims[4][3] = {{outer, source[0], target[0]},
                                {count[0], source[1], target[1]},
                                {count[1], source[2], target[2]},
                                {inner, 1, 1}};
    const int64_t offset = (s.axes[0].before * padded[1] + s.axes[1].before) * inner;
    const auto bytes = static_cast<int64_t>(size);
    const char* const f = static_cast<const char*>(from) + (to_padded ? 0 : offset * bytes);
    char* const t = static_cast<char*>(to) + (to_padded ? offset * bytes : 0);
    return device_strided_copy(ctx, size, dims, f, t);
  }

  static Status convolve_by_library(KernelContext& ctx, DType dtype, Product product,
                                    const Convolution& s, const void* image, const void* filter,
                                    const void* dy, void* result) {
    const size_t size = dtype_size(dtype);
    CudaConvolution c;
    c.batch = s.batch;
    c.in_channels = s.in_channels;
    c.out_channels = s.out_channels;
    c.channels_last = s.channels_last;
    // cuDNN pads both sides alike. Where that gives another size, a padded image stands in.
    int64_t padded[2];
    bool stands_in = false;
    for (int a = 0; a < 2; ++a) {
      const Axis& axis = s.axes[a];
      const int64_t reach = (axis.window - 1) * axis.dilation + 1;
      c.window[a] = axis.window;
      c.stride[a] = axis.stride;
      c.dilation[a] = axis.dilation;
      c.output[a] = axis.output;
      c.input[a] = axis.input;
      c.padding[a] = axis.before;
      padded[a] = (axis.output - 1) * axis.stride + reach;
      const int64_t room = axis.input + 2 * axis.before - reach;
      stands_in |= axis.before < 0 || room < 0 || room / axis.stride + 1 != axis.output;
    }
    Tensor padded_image, library_filter;
    const auto allocate = [&](int64_t elements) {
      return ctx.allocate_temp(DType::kUInt8, Shape{elements * static_cast<int64_t>(size)});
    };
    if (stands_in) {
      for (int a = 0; a < 2; ++a) {
        if (s.axes[a].before < 0) return unimplemented("negative padding");
        c.input[a] = padded[a];
        c.padding[a] = 0;
      }
      const int64_t elements = s.batch * s.in_channels * padded[0] * padded[1];
      MR_TRY_ASSIGN(padded_image, allocate(elements));
      if (product != Product::kBackwardInput) {
        const char zero = 0;
        MR_TRY(device_fill(ctx, 1, &zero, true, padded_image.mutable_raw(),
                           static_cast<int64_t>(padded_image.bytes())));
        MR_TRY(move_padded(ctx, size, s, padded, true, image, padded_image.mutable_raw()));
        image = padded_image.raw();
      }
    }
    MR_TRY_ASSIGN(library_filter,
                  allocate(s.axes[0].window * s.axes[1].window * s.in_channels * s.out_channels));
    if (product != Product::kBackwardFilter) {
      MR_TRY(to_library(ctx, size, s, filter, library_filter.mutable_raw()));
    }
    switch (product) {
      case Product::kForward:
        return cuda_convolve(ctx, dtype, CudaConvolutionResult::kOutput, c, image,
                             library_filter.raw(), nullptr, result);
      case Product::kBackwardInput:
        MR_TRY(cuda_convolve(ctx, dtype, CudaConvolutionResult::kInput, c, nullptr,
                             library_filter.raw(), dy,
                             stands_in ? padded_image.mutable_raw() : result));
        if (!stands_in) return ok_status();
        if (padded[0] < s.axes[0].input + s.axes[0].before ||
            padded[1] < s.axes[1].input + s.axes[1].before) {
          const char zero = 0;  // what no window sees
          MR_TRY(device_fill(ctx, 1, &zero, true, result,
                             s.batch * s.in_channels * s.axes[0].input * s.axes[1].input *
                                 static_cast<int64_t>(size)));
        }
        return move_padded(ctx, size, s, padded, false, padded_image.raw(), result);
      case Product::kBackwardFilter:
        MR_TRY(cuda_convolve(ctx, dtype, CudaConvolutionResult::kFilter, c, image, nullptr, dy,
                             library_filter.mutable_raw()));
        return from_library(ctx, size, s, library_filter.raw(), result);
    }
    return ok_status();
  }
};

// Registering.

constexpr TypeSet kMoved = type_set_of<PlainTypes>;
constexpr TypeSet kReplaced = kMoved - TypeSet{DType::kComplex128};
constexpr TypeSet kReal = type_set_of<DeviceRealTypes>;
constexpr TypeSet kBool = {DType::kBool};

// Gives CUDA devices the CPU's kernels of an op for these types of its attribute; empty: all that
// they take.
void share(Registry& registry, const std::string& op, const char* attr = "", TypeSet types = {}) {
  for (const KernelDef* def : KernelRegistry::global().list(op)) {
    if (def->device != DeviceKind::kCpu || !def->label.empty()) continue;
    KernelDef shared = *def;
    shared.device = DeviceKind::kCuda;
    if (!types.empty()) {
      bool constrained = false;
      for (KernelDef::Constraint& c : shared.constraints) {
        if (c.attr != attr) continue;
        constrained = true;
        c.types = c.types & types;
        if (c.types.empty()) shared.op = "";
      }
      if (!constrained) shared.constraints.push_back({attr, types});
    }
    if (!shared.op.empty()) registry.kernel(shared);
  }
}

void register_kernels(Registry& registry) {
  for (const OpDef* op : OpRegistry::global().list()) {
    const bool typed = op->find_attr("T") != nullptr;
    TypeSet types = unary_launches().types(op->name);
    if (types.empty()) types = binary_launches().types(op->name);
    if (!types.empty()) share(registry, op->name, "T", typed ? types : TypeSet());
  }
  for (const char* op : {"Select",       "SelectV2",     "Fill",           "ZerosLike",
                         "Transpose",    "ReverseV2",    "Reverse",        "Pad",
                         "PadV2",        "Slice",        "StridedSlice",   "StridedSliceGrad",
                         "ConcatV2",     "Concat",       "Pack",           "Split",
                         "SplitV",       "Unpack",       "Tile",           "BroadcastTo",
                         "SpaceToBatch", "BatchToSpace", "SpaceToBatchND", "BatchToSpaceND",
                         "SpaceToDepth", "DepthToSpace", "Diag",           "DiagPart",
                         "OneHot",       "Assign"}) {
    share(registry, op, "T", kMoved);
  }
  for (const char* op : {"Gather", "GatherV2"}) share(registry, op, "Tparams", kMoved);
  for (const char* op : {"ReadVariableOp", "AssignVariableOp", "ResourceGather"}) {
    share(registry, op, "dtype", kMoved);
  }
  share(registry, "ScatterUpdate", "T", kReplaced);
  share(registry, "ResourceScatterUpdate", "dtype", kReplaced);
  for (const char* op : {"AssignAddVariableOp", "AssignSubVariableOp"}) {
    share(registry, op, "dtype", kReal);
  }
  for (const char* name :
       {"ScatterAdd", "ScatterSub", "ScatterMul", "ScatterDiv", "ScatterMin", "ScatterMax"}) {
    share(registry, name, "T", kReal);
    share(registry, str_cat("Resource", name), "dtype", kReal);
  }
  for (const char* op :
       {"AddN", "BiasAdd", "BiasAddV1", "BiasAddGrad", "ConjugateTranspose", "Sum", "Mean", "Prod",
        "Max", "Min", "ArgMax", "ArgMin", "L2Loss", "AssignAdd", "AssignSub"}) {
    share(registry, op, "T", kReal);
  }
  share(registry, "OnesLike", "T", kReal | kBool);
  share(registry, "Range", "Tidx", kFloating | kIndexTypes);
  for (const char* op : {"All", "Any"}) share(registry, op);
  for (const char* op :
       {"Softmax", "LogSoftmax", "SoftmaxCrossEntropyWithLogits",
        "SparseSoftmaxCrossEntropyWithLogits", "LRN", "LRNGrad", "MaxPool", "MaxPoolGrad",
        "MaxPoolGradGrad", "MaxPool3D", "MaxPool3DGrad", "MaxPool3DGradGrad", "AvgPool",
        "AvgPoolGrad", "AvgPool3D", "AvgPool3DGrad", "Conv2D", "Conv2DBackpropInput",
        "Conv2DBackpropFilter"}) {
    share(registry, op, "T", kFloating);
  }
  constexpr TypeSet kMultiplied =
      kFloating | TypeSet{DType::kInt32, DType::kInt64, DType::kUInt32, DType::kUInt64};
  for (const char* op : {"MatMul", "BatchMatMul", "BatchMatMulV2"}) {
    share(registry, op, "T", kMultiplied);
  }
  share(registry, "BatchMatMulV3", "Ta", kMultiplied);
  for (const char* op : {"RandomUniform", "RandomStandardNormal", "TruncatedNormal"}) {
    share(registry, op, "dtype", kFloating);
  }
  for (int rule = 0; rule < num_optimizers(); ++rule) {
    if (!device_applies(rule)) continue;
    for (const char* form : {"Apply", "ResourceApply"}) {
      share(registry, str_cat(form, optimizer_info(rule).name), "T", kFloating);
    }
  }
  register_device_fused(registry);
  // Cast has a type on either side.
  const TypeSet converted = kReal | kBool;
  for (const KernelDef* def : KernelRegistry::global().list("Cast")) {
    if (def->device != DeviceKind::kCpu) continue;
    KernelDef shared = *def;
    shared.device = DeviceKind::kCuda;
    shared.constraints = {{"SrcT", converted}, {"DstT", converted}};
    registry.kernel(shared);
  }
}

Status register_cuda_kernels() {
  static const Status* const status = [] {
    Status ops = register_ops();
    if (!ops.ok()) return new Status(ops);
    set_device_engine(new CudaEngine);
    Registry registry(OpRegistry::global(), KernelRegistry::global());
    register_kernels(registry);
    return new Status(registry.status());
  }();
  return *status;
}

Result<std::vector<Ref<Device>>> make_devices(const DeviceName& task, const GpuOptions& options) {
  MR_TRY_ASSIGN(std::vector<Ref<Device>> devices, make_cuda_devices(task, options));
  if (!devices.empty()) MR_TRY(register_cuda_kernels());
  return devices;
}

}  // namespace
}  // namespace millrace

extern "C" __attribute__((visibility("default"))) const millrace::GpuLibrary* millrace_gpu_library(
    int version) {
  static const millrace::GpuLibrary library = {&millrace::make_devices};
  return version == millrace::GpuLibrary::kVersion ? &library : nullptr;
}
