#include "millrace/ops/array/device_array.cuh"
#include "millrace/ops/nn/device_nn.cuh"

namespace millrace {
namespace {

using Axis = DeviceEngine::Axis;

// The pixels of the input that window `o` sees.
struct Span {
  int64_t first, end;
};
__device__ __forceinline__ Span span(const Axis& axis, int64_t o) {
  const int64_t origin = o * axis.stride - axis.before;
  const int64_t end = origin + axis.window < axis.input ? origin + axis.window : axis.input;
  return {origin < 0 ? 0 : origin, end};
}
// The windows that see pixel `i`.
__device__ __forceinline__ Span windows(const Axis& axis, int64_t i) {
  const int64_t at = i + axis.before;
  const int64_t first = at < axis.window ? 0 : (at - axis.window) / axis.stride + 1;
  const int64_t end = at / axis.stride + 1;
  return {first, end < axis.output ? end : axis.output};
}

template <class C>
__device__ __forceinline__ bool larger(C x, C y) {
  return !(x <= y) && y == y;
}

// One element of the output of a pool.
template <class T>
struct PoolForward {
  DeviceEngine::Pooling sizes;
  DeviceEngine::Pool kind;
  const T *x, *values;
  T* y;

  __device__ __forceinline__ void operator()(int64_t i) const {
    using C = ComputeType<T>;
    const Axis *z = &sizes.axes[0], *h = &sizes.axes[1], *w = &sizes.axes[2];
    int64_t rest = i;
    const int64_t c = rest % sizes.channels;
    rest /= sizes.channels;
    const int64_t ow = rest % w->output;
    rest /= w->output;
    const int64_t oh = rest % h->output;
    rest /= h->output;
    const int64_t oz = rest % z->output, image = rest / z->output;
    const Span sz = span(*z, oz), sh = span(*h, oh), sw = span(*w, ow);
    C best{}, sum{};
    T found{};
    int64_t count = 0;
    for (int64_t a = sz.first; a < sz.end; ++a) {
      for (int64_t b = sh.first; b < sh.end; ++b) {
        for (int64_t d = sw.first; d < sw.end; ++d) {
          const int64_t at =
              (((image * z->input + a) * h->input + b) * w->input + d) * sizes.channels + c;
          const C v = widen(x[at]);
          if (count == 0 || larger(v, best)) {
            best = v;
            if (values != nullptr) found = values[at];
          }
          sum += v;
          ++count;
        }
      }
    }
    if (kind == DeviceEngine::Pool::kMax) {
      y[i] = narrow<T>(best);
    } else if (kind == DeviceEngine::Pool::kAtMax) {
      y[i] = found;
    } else {
      y[i] = narrow<T>(count == 0 ? C{} : sum / static_cast<C>(count));
    }
  }
};

// One element of the gradient of a pool: the sum over the windows that see it, in order.
template <class T>
struct PoolBackward {
  DeviceEngine::Pooling sizes;
  bool max;
  const T *x, *dy;
  T* dx;

  __device__ __forceinline__ void operator()(int64_t i) const {
    using C = ComputeType<T>;
    const Axis *z = &sizes.axes[0], *h = &sizes.axes[1], *w = &sizes.axes[2];
    int64_t rest = i;
    const int64_t c = rest % sizes.channels;
    rest /= sizes.channels;
    const int64_t px = rest % w->input;
    rest /= w->input;
    const int64_t py = rest % h->input;
    rest /= h->input;
    const int64_t pz = rest % z->input, image = rest / z->input;
    const Span wz = windows(*z, pz), wh = windows(*h, py), ww = windows(*w, px);
    C sum{};
    for (int64_t oz = wz.first; oz < wz.end; ++oz) {
      for (int64_t oh = wh.first; oh < wh.end; ++oh) {
        for (int64_t ow = ww.first; ow < ww.end; ++ow) {
          const Span sz = span(*z, oz), sh = span(*h, oh), sw = span(*w, ow);
          const C g = widen(
              dy[(((image * z->output + oz) * h->output + oh) * w->output + ow) * sizes.channels +
                 c]);
          if (!max) {
            const int64_t count = (sz.end - sz.first) * (sh.end - sh.first) * (sw.end - sw.first);
            sum += g / static_cast<C>(count);
            continue;
          }
          int64_t where = -1;
          C best{};
          for (int64_t a = sz.first; a < sz.end; ++a) {
            for (int64_t b = sh.first; b < sh.end; ++b) {
              for (int64_t d = sw.first; d < sw.end; ++d) {
                const int64_t at =
                    (((image * z->input + a) * h->input + b) * w->input + d) * sizes.channels + c;
                const C v = widen(x[at]);
                if (where < 0 || larger(v, best)) {
                  best = v;
                  where = at;
                }
              }
            }
          }
          if (where == i) sum += g;
        }
      }
    }
    dx[i] = narrow<T>(sum);
  }
};

constexpr int kRowThreads = 256;

// The fold of one value of each thread of the block.
template <class C>
__device__ __forceinline__ C block_max(C v, C* shared) {
  shared[threadIdx.x] = v;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      const C a = shared[threadIdx.x], b = shared[threadIdx.x + half];
      shared[threadIdx.x] = a > b ? a : b;
    }
    __syncthreads();
  }
  const C all = shared[0];
  __syncthreads();
  return all;
}
template <class C>
__device__ __forceinline__ C block_sum(C v, C* shared) {
  shared[threadIdx.x] = v;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  const C all = shared[0];
  __syncthreads();
  return all;
}

__device__ __forceinline__ float exp_of(float x) { return expf(x); }
__device__ __forceinline__ double exp_of(double x) { return exp(x); }
__device__ __forceinline__ float log_of(float x) { return logf(x); }
__device__ __forceinline__ double log_of(double x) { return log(x); }
__device__ __forceinline__ float pow_of(float x, float y) { return powf(x, y); }

// The largest element of a row and the sum of exp(x - largest).
template <class T, class C>
__device__ __forceinline__ void row_sums(const T* x, int64_t n, C* shared, C& largest, C& sum) {
  largest = -static_cast<C>(__builtin_huge_val());
  for (int64_t k = threadIdx.x; k < n; k += blockDim.x) {
    const C v = widen(x[k]);
    if (v > largest) largest = v;
  }
  largest = block_max(largest, shared);
  sum = 0;
  for (int64_t k = threadIdx.x; k < n; k += blockDim.x) sum += exp_of(widen(x[k]) - largest);
  sum = block_sum(sum, shared);
}

template <class T, bool kLog>
__global__ void __launch_bounds__(kRowThreads)
    softmax_kernel(const T* x, int64_t rows, int64_t n, T* y) {
  using C = ComputeType<T>;
  __shared__ C shared[kRowThreads];
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    C largest, sum;
    row_sums(x + row * n, n, shared, largest, sum);
    const C log_sum = log_of(sum);
    for (int64_t k = threadIdx.x; k < n; k += blockDim.x) {
      const C v = widen(x[row * n + k]) - largest;
      y[row * n + k] = narrow<T>(kLog ? v - log_sum : exp_of(v) / sum);
    }
    __syncthreads();
  }
}

// With a label for each row, or (labels null) a distribution.
template <class T, class I>
__global__ void __launch_bounds__(kRowThreads)
    cross_entropy_kernel(const T* x, const I* labels, const T* distribution, int64_t rows,
                         int64_t n, uint64_t* bad, T* loss, T* gradient) {
  using C = ComputeType<T>;
  __shared__ C shared[kRowThreads];
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    C largest, sum;
    row_sums(x + row * n, n, shared, largest, sum);
    const C log_sum = log_of(sum);
    const int64_t label = labels != nullptr ? static_cast<int64_t>(labels[row]) : -1;
    if (labels != nullptr && (label < 0 || label >= n) && threadIdx.x == 0) {
      report_finding(bad, static_cast<uint64_t>(row));
    }
    C mine = 0;
    for (int64_t k = threadIdx.x; k < n; k += blockDim.x) {
      const C v = widen(x[row * n + k]) - largest;
      const C wanted = labels != nullptr ? C(k == label ? 1 : 0) : widen(distribution[row * n + k]);
      if (wanted != 0) mine += wanted * (log_sum - v);
      gradient[row * n + k] = narrow<T>(exp_of(v) / sum - wanted);
    }
    const C all = block_sum(mine, shared);
    if (threadIdx.x == 0) loss[row] = narrow<T>(all);
  }
}

int64_t threads_for(int64_t n) {
  int64_t threads = 32;
  while (threads < kRowThreads && threads < n) threads *= 2;
  return threads;
}

template <class T>
struct LrnForward {
  int64_t channels, radius;
  float bias, alpha, beta;
  const T* x;
  T* y;
  __device__ __forceinline__ void operator()(int64_t i) const {
    const int64_t c = i % channels;
    const T* const pixel = x + (i - c);
    float sum = 0;
    const int64_t first = c > radius ? c - radius : 0;
    const int64_t end = c + radius + 1 < channels ? c + radius + 1 : channels;
    for (int64_t k = first; k < end; ++k) sum += widen(pixel[k]) * widen(pixel[k]);
    y[i] = narrow<T>(widen(pixel[c]) * pow_of(bias + alpha * sum, -beta));
  }
};

template <class T>
struct LrnBackward {
  int64_t channels, radius;
  float bias, alpha, beta;
  const T *x, *y, *dy;
  T* dx;
  __device__ __forceinline__ float norm(const T* pixel, int64_t c) const {
    float sum = 0;
    const int64_t first = c > radius ? c - radius : 0;
    const int64_t end = c + radius + 1 < channels ? c + radius + 1 : channels;
    for (int64_t k = first; k < end; ++k) sum += widen(pixel[k]) * widen(pixel[k]);
    return bias + alpha * sum;
  }
  __device__ __forceinline__ void operator()(int64_t i) const {
    const int64_t d = i % channels, pixel = i - d;
    float sum = 0;
    const int64_t first = d > radius ? d - radius : 0;
    const int64_t end = d + radius + 1 < channels ? d + radius + 1 : channels;
    for (int64_t c = first; c < end; ++c) {
      sum += widen(dy[pixel + c]) * widen(y[pixel + c]) / norm(x + pixel, c);
    }
    dx[i] = narrow<T>(widen(dy[i]) * pow_of(norm(x + pixel, d), -beta) -
                      2 * alpha * beta * widen(x[i]) * sum);
  }
};

// Where elements of images and filters lie.
struct ConvPlaces {
  DeviceEngine::Convolution s;
  __device__ __forceinline__ int64_t image(int64_t n, int64_t y, int64_t x, int64_t c) const {
    const Axis &h = s.axes[0], &w = s.axes[1];
    return s.channels_last ? ((n * h.input + y) * w.input + x) * s.in_channels + c
                           : ((n * s.in_channels + c) * h.input + y) * w.input + x;
  }
  __device__ __forceinline__ int64_t output(int64_t n, int64_t y, int64_t x, int64_t c) const {
    const Axis &h = s.axes[0], &w = s.axes[1];
    return s.channels_last ? ((n * h.output + y) * w.output + x) * s.out_channels + c
                           : ((n * s.out_channels + c) * h.output + y) * w.output + x;
  }
  __device__ __forceinline__ int64_t filter(int64_t y, int64_t x, int64_t ci, int64_t co) const {
    return ((y * s.axes[1].window + x) * s.in_channels + ci) * s.out_channels + co;
  }
};

template <class T>
struct ConvForward {
  ConvPlaces p;
  const T *image, *filter;
  T* out;
  __device__ __forceinline__ void operator()(int64_t i) const {
    const Axis &h = p.s.axes[0], &w = p.s.axes[1];
    int64_t rest = i;
    const int64_t co = rest % p.s.out_channels;
    rest /= p.s.out_channels;
    const int64_t ox = rest % w.output;
    rest /= w.output;
    const int64_t oy = rest % h.output, n = rest / h.output;
    ComputeType<T> sum{};
    for (int64_t fy = 0; fy < h.window; ++fy) {
      const int64_t y = oy * h.stride - h.before + fy * h.dilation;
      if (y < 0 || y >= h.input) continue;
      for (int64_t fx = 0; fx < w.window; ++fx) {
        const int64_t x = ox * w.stride - w.before + fx * w.dilation;
        if (x < 0 || x >= w.input) continue;
        for (int64_t ci = 0; ci < p.s.in_channels; ++ci) {
          sum += widen(image[p.image(n, y, x, ci)]) * widen(filter[p.filter(fy, fx, ci, co)]);
        }
      }
    }
    out[p.output(n, oy, ox, co)] = narrow<T>(sum);
  }
};

template <class T>
struct ConvBackwardInput {
  ConvPlaces p;
  const T *filter, *dy;
  T* dx;
  __device__ __forceinline__ void operator()(int64_t i) const {
    const Axis &h = p.s.axes[0], &w = p.s.axes[1];
    int64_t rest = i;
    const int64_t ci = rest % p.s.in_channels;
    rest /= p.s.in_channels;
    const int64_t x = rest % w.input;
    rest /= w.input;
    const int64_t y = rest % h.input, n = rest / h.input;
    ComputeType<T> sum{};
    for (int64_t fy = 0; fy < h.window; ++fy) {
      const int64_t ay = y + h.before - fy * h.dilation;
      if (ay < 0 || ay % h.stride != 0 || ay / h.stride >= h.output) continue;
      for (int64_t fx = 0; fx < w.window; ++fx) {
        const int64_t ax = x + w.before - fx * w.dilation;
        if (ax < 0 || ax % w.stride != 0 || ax / w.stride >= w.output) continue;
        for (int64_t co = 0; co < p.s.out_channels; ++co) {
          sum += widen(dy[p.output(n, ay / h.stride, ax / w.stride, co)]) *
                 widen(filter[p.filter(fy, fx, ci, co)]);
        }
      }
    }
    dx[p.image(n, y, x, ci)] = narrow<T>(sum);
  }
};

template <class T>
struct ConvBackwardFilter {
  ConvPlaces p;
  const T *image, *dy;
  T* dw;
  __device__ __forceinline__ void operator()(int64_t i) const {
    const Axis &h = p.s.axes[0], &w = p.s.axes[1];
    int64_t rest = i;
    const int64_t co = rest % p.s.out_channels;
    rest /= p.s.out_channels;
    const int64_t ci = rest % p.s.in_channels;
    rest /= p.s.in_channels;
    const int64_t fx = rest % w.window, fy = rest / w.window;
    ComputeType<T> sum{};
    for (int64_t n = 0; n < p.s.batch; ++n) {
      for (int64_t oy = 0; oy < h.output; ++oy) {
        const int64_t y = oy * h.stride - h.before + fy * h.dilation;
        if (y < 0 || y >= h.input) continue;
        for (int64_t ox = 0; ox < w.output; ++ox) {
          const int64_t x = ox * w.stride - w.before + fx * w.dilation;
          if (x < 0 || x >= w.input) continue;
          sum += widen(image[p.image(n, y, x, ci)]) * widen(dy[p.output(n, oy, ox, co)]);
        }
      }
    }
    dw[i] = narrow<T>(sum);
  }
};

template <class T>
struct MatMulElement {
  DeviceEngine::MatMul s;
  const T *a, *b;
  T* c;
  __device__ __forceinline__ void operator()(int64_t i) const {
    const int64_t column = i % s.n, row = i / s.n % s.m, matrix = i / s.n / s.m;
    const T* const x = a + matrix * s.stride_a;
    const T* const y = b + matrix * s.stride_b;
    using S = SumType<T>;
    S sum{};
    for (int64_t k = 0; k < s.k; ++k) {
      sum += static_cast<S>(widen(x[s.transpose_a ? k * s.m + row : row * s.k + k])) *
             static_cast<S>(widen(y[s.transpose_b ? column * s.k + k : k * s.n + column]));
    }
    c[matrix * s.stride_c + row * s.n + column] = narrow<T>(static_cast<ComputeType<T>>(sum));
  }
};

}  // namespace

Status device_pool(KernelContext& ctx, DeviceEngine::Pool kind, DType dtype,
                   const DeviceEngine::Pooling& sizes, const void* x, const void* dy, void* y) {
  using Pool = DeviceEngine::Pool;
  const Status quick = device_pool_images(ctx, kind, dtype, sizes, x, dy, y);
  if (quick.code() != Code::kUnimplemented) return quick;
  const bool backward = kind == Pool::kMaxGradient || kind == Pool::kAverageGradient;
  int64_t n = sizes.batch * sizes.channels;
  for (const Axis& axis : sizes.axes) n *= backward ? axis.input : axis.output;
  return dispatch<FloatingTypes>(dtype, [&]<class T>() -> Status {
    const T *from = static_cast<const T*>(x), *gradient = static_cast<const T*>(dy);
    if (backward) {
      return for_each(
          ctx, n,
          PoolBackward<T>{sizes, kind == Pool::kMaxGradient, from, gradient, static_cast<T*>(y)});
    }
    return for_each(ctx, n, PoolForward<T>{sizes, kind, from, gradient, static_cast<T*>(y)});
  });
}

Status device_softmax(KernelContext& ctx, bool log, DType dtype, const void* x, int64_t rows,
                      int64_t n, void* y) {
  return dispatch<FloatingTypes>(dtype, [&]<class T>() -> Status {
    const auto kernel = log ? &softmax_kernel<T, true> : &softmax_kernel<T, false>;
    return launch(ctx, kernel, blocks_for(rows, 1), static_cast<unsigned>(threads_for(n)),
                  static_cast<const T*>(x), rows, n, static_cast<T*>(y));
  });
}

Status device_cross_entropy(KernelContext& ctx, DType dtype, DType label, const void* x,
                            const void* labels, int64_t rows, int64_t n, void* loss,
                            void* gradient) {
  if (rows == 0) return ok_status();
  const bool classes = kIndexTypes.contains(label);
  uint64_t* bad = nullptr;
  if (classes) {
    MR_TRY_ASSIGN(bad, expect_finding(ctx, [n](uint64_t row) {
                    return invalid_argument(
                        "Received a label value which is outside the valid range of [0, ", n,
                        "), in row ", row);
                  }));
  }
  const unsigned threads = static_cast<unsigned>(threads_for(n)), blocks = blocks_for(rows, 1);
  return dispatch<FloatingTypes>(dtype, [&]<class T>() -> Status {
    const T* const from = static_cast<const T*>(x);
    T *const losses = static_cast<T*>(loss), *const dx = static_cast<T*>(gradient);
    if (!classes) {
      return launch(ctx, &cross_entropy_kernel<T, int32_t>, blocks, threads, from, nullptr,
                    static_cast<const T*>(labels), rows, n, bad, losses, dx);
    }
    return dispatch<IndexTypes>(label, [&]<class I>() -> Status {
      return launch(ctx, &cross_entropy_kernel<T, I>, blocks, threads, from,
                    static_cast<const I*>(labels), nullptr, rows, n, bad, losses, dx);
    });
  });
}

Status device_lrn(KernelContext& ctx, DType dtype, const void* x, const void* y, const void* dy,
                  int64_t rows, int64_t channels, int64_t radius, float bias, float alpha,
                  float beta, void* out) {
  return dispatch<TypeList<float, Half, BFloat16>>(dtype, [&]<class T>() -> Status {
    const T* const from = static_cast<const T*>(x);
    if (dy == nullptr) {
      return for_each(
          ctx, rows * channels,
          LrnForward<T>{channels, radius, bias, alpha, beta, from, static_cast<T*>(out)});
    }
    return for_each(
        ctx, rows * channels,
        LrnBackward<T>{channels, radius, bias, alpha, beta, from, static_cast<const T*>(y),
                       static_cast<const T*>(dy), static_cast<T*>(out)});
  });
}

Status device_convolve(KernelContext& ctx, DType dtype, DeviceEngine::Product product,
                       const DeviceEngine::Convolution& s, const void* image, const void* filter,
                       const void* dy, void* result) {
  const Axis &h = s.axes[0], &w = s.axes[1];
  return dispatch<FloatingTypes>(dtype, [&]<class T>() -> Status {
    const T *x = static_cast<const T*>(image), *f = static_cast<const T*>(filter);
    const T* g = static_cast<const T*>(dy);
    T* const to = static_cast<T*>(result);
    switch (product) {
      case DeviceEngine::Product::kForward:
        return for_each(ctx, s.batch * h.output * w.output * s.out_channels,
                        ConvForward<T>{{s}, x, f, to});
      case DeviceEngine::Product::kBackwardInput:
        return for_each(ctx, s.batch * h.input * w.input * s.in_channels,
                        ConvBackwardInput<T>{{s}, f, g, to});
      case DeviceEngine::Product::kBackwardFilter:
        return for_each(ctx, h.window * w.window * s.in_channels * s.out_channels,
                        ConvBackwardFilter<T>{{s}, x, g, to});
    }
    return ok_status();
  });
}

Status device_matmul(KernelContext& ctx, DType dtype, const DeviceEngine::MatMul& sizes,
                     const void* a, const void* b, void* c) {
  using Types = ConcatTypes<FloatingTypes, TypeList<int32_t, int64_t, uint32_t, uint64_t>>;
  return dispatch<Types>(dtype, [&]<class T>() -> Status {
    return for_each(ctx, sizes.batch * sizes.m * sizes.n,
                    MatMulElement<T>{sizes, static_cast<const T*>(a), static_cast<const T*>(b),
                                     static_cast<T*>(c)});
  });
}

}  // namespace millrace
