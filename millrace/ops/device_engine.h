#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "millrace/kernel/kernel.h"
#include "millrace/ops/reduce/fold.h"

namespace millrace {

// What the skeletons of kernels (docs/kernels.md) do on a device whose kernels only enqueue. A
// kernel there is the CPU's: the same object checks what came, works out geometry and allocates.
// Only where the CPU's loops would begin, the skeleton asks for the engine of its device and hands
// over.
//
// All memory is the device's unless it says otherwise, and complete: every function enqueues on
// ctx.stream() and returns. Sizes are checked by the caller. What only the device can see, such as
// an index that is out of range, is reported to the step later.
class DeviceEngine {
 public:
  virtual ~DeviceEngine() = default;

  // Elements and how they are seen: a shape that broadcasts to the result's.
  struct Operand {
    const void* data = nullptr;
    const Shape* shape = nullptr;
  };
  // What happens to an index that no element has.
  struct IndexCheck {
    int64_t limit = 0;      // indices are in [0, limit)
    const char* what = "";  // "indices"
    bool skip = false;      // it is left out instead of being an error
  };
  // One axis of a sliding window; see AxisGeometry.
  struct Axis {
    int64_t input = 1, window = 1, stride = 1, dilation = 1, before = 0, output = 1;
  };
  struct Convolution {
    int64_t batch = 0, in_channels = 0, out_channels = 0;
    Axis axes[2];
    bool channels_last = true;
  };
  // Which of the three tensors of a convolution is the result.
  enum class Product : uint8_t { kForward, kBackwardInput, kBackwardFilter };
  enum class Pool : uint8_t { kMax, kAverage, kMaxGradient, kAverageGradient, kAtMax };
  // Images [batch, axes, channels] of up to three axes.
  struct Pooling {
    int64_t batch = 0, channels = 0;
    Axis axes[3];
  };
  // Products of matrices in row-major order: c = op(a) op(b), a is [m,k] (or [k,m]).
  struct MatMul {
    int64_t m = 0, n = 0, k = 0;
    bool transpose_a = false, transpose_b = false;
    int64_t batch = 1;  // matrices that lie behind each other; 0 strides repeat one
    int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  };
  enum class Distribution : uint8_t { kUniform, kNormal, kTruncatedNormal };
  enum class Softmax : uint8_t { kSoftmax, kLogSoftmax };
  enum class Reduction : uint8_t { kSum, kMean, kProd, kMax, kMin };
  // A part of a fold: sizes from the outermost, of which every second one is reduced.
  struct FoldDims {
    std::span<const int64_t> sizes;
    bool first_reduced = false;
  };

  // y = f(x) of the table entry called `op`, over n elements.
  virtual Status unary(KernelContext& ctx, std::string_view op, DType dtype, const void* x, void* y,
                       int64_t n) = 0;
  // z = f(a, b), broadcast to `shape`.
  virtual Status binary(KernelContext& ctx, std::string_view op, DType dtype, Operand a, Operand b,
                        void* z, const Shape& shape) = 0;
  // out = condition ? t : e, broadcast; elements of `size` bytes.
  virtual Status select(KernelContext& ctx, size_t size, Operand condition, Operand t, Operand e,
                        void* out, const Shape& shape) = 0;
  virtual Status cast(KernelContext& ctx, DType from, DType to, bool truncate, const void* x,
                      void* y, int64_t n) = 0;
  // The sum of tensors of n elements each.
  virtual Status add_n(KernelContext& ctx, DType dtype, std::span<const void* const> inputs,
                       void* y, int64_t n) = 0;
  // Dimensions are size, stride in the source, stride in the target, from the outermost.
  virtual Status strided_copy(const KernelContext& ctx, size_t size,
                              std::span<const int64_t[3]> dims, const void* from, void* to) = 0;
  // Every element becomes the one at `value`; `host`: that lies in host memory.
  virtual Status fill(const KernelContext& ctx, size_t size, const void* value, bool host, void* to,
                      int64_t n) = 0;
  // start + i * delta.
  virtual Status range(KernelContext& ctx, DType dtype, double start, double delta,
                       int64_t int_start, int64_t int_delta, void* to, int64_t n) = 0;
  virtual Status copy(const KernelContext& ctx, const void* from, void* to, size_t bytes) = 0;
  // The reduced dimensions of x; `y` has one element for each kept one. No size is zero.
  virtual Status reduce(KernelContext& ctx, Reduction kind, DType dtype, const void* x,
                        FoldDims dims, void* y) = 0;
  // Half the sum of squares.
  virtual Status l2_loss(KernelContext& ctx, DType dtype, const void* x, int64_t n, void* y) = 0;
  // The position of the largest (smallest) of n elements, [outer, n, inner] -> [outer, inner].
  virtual Status arg_reduce(KernelContext& ctx, bool largest, DType dtype, DType index,
                            const void* x, int64_t outer, int64_t n, int64_t inner, void* y) = 0;
  virtual Status matmul(KernelContext& ctx, DType dtype, const MatMul& sizes, const void* a,
                        const void* b, void* c) = 0;
  virtual Status convolve(KernelContext& ctx, DType dtype, Product product,
                          const Convolution& sizes, const void* image, const void* filter,
                          const void* dy, void* result) = 0;
  // kMax, kAverage: of x. Gradients: of x and dy; kAtMax: the element of dy where the largest is.
  virtual Status pool(KernelContext& ctx, Pool kind, DType dtype, const Pooling& sizes,
                      const void* x, const void* dy, void* y) = 0;
  virtual Status softmax(KernelContext& ctx, Softmax kind, DType dtype, const void* x, int64_t rows,
                         int64_t n, void* y) = 0;
  // With class numbers of type `label` where that is not the features' own type.
  virtual Status cross_entropy(KernelContext& ctx, DType dtype, DType label, const void* x,
                               const void* labels, int64_t rows, int64_t n, void* loss,
                               void* gradient) = 0;
  // A pass of optimiser number `rule`; scalars[i] is the i-th scalar argument, of dtype or int64.
  virtual Status apply(KernelContext& ctx, int rule, bool flag, DType dtype,
                       std::span<void* const> slots, const void* gradient,
                       std::span<const void* const> scalars, int64_t n) = 0;
  virtual Status random(KernelContext& ctx, Distribution kind, DType dtype, const uint64_t* stream,
                        void* y, int64_t n) = 0;
  // out[b, o, i, :] = from[b, o, indices[b, i], :].
  virtual Status gather(KernelContext& ctx, size_t size, DType index, int64_t batch, int64_t outer,
                        int64_t count, int64_t run, const void* from, const void* indices,
                        IndexCheck check, void* out) = 0;
  // Row indices[i] of `to` becomes f(itself, row i of `from`), in order of i; f is the binary op
  // called `op`, the update itself where that is empty.
  virtual Status scatter(KernelContext& ctx, std::string_view op, DType dtype, DType index,
                         int64_t count, int64_t run, const void* from, bool one_row,
                         const void* indices, IndexCheck check, void* to) = 0;
  virtual Status one_hot(KernelContext& ctx, size_t size, DType index, const void* indices,
                         int64_t outer, int64_t depth, int64_t inner, const void* on,
                         const void* off, void* out) = 0;
  // Local response normalisation, and its gradient where dy is not null.
  virtual Status lrn(KernelContext& ctx, DType dtype, const void* x, const void* y, const void* dy,
                     int64_t rows, int64_t channels, int64_t radius, float bias, float alpha,
                     float beta, void* out) = 0;
};

// The engine of the kernel's device; null where kernels run on the host.
DeviceEngine* device_engine(const KernelContext& ctx);
// Makes `engine`, which stays for ever, that of all CUDA devices. By the library that makes them.
void set_device_engine(DeviceEngine* engine);

// A copy of `tensor` in memory of its own on the same device: Tensor::clone() where that is the
// host's.
Result<Tensor> clone_on_device(const KernelContext& ctx, const Tensor& tensor);

}  // namespace millrace
