#include "millrace/ops/array/strided_copy.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "millrace/kernel/kernel_call.h"
#include "millrace/ops/array/transpose_blocks.h"
#include "millrace/ops/device_engine.h"
#include "millrace/ops/element.h"
#include "millrace/ops/stream.h"

namespace millrace {
namespace {

// Runs of fewer bytes end too often within a line to be written around the caches.
constexpr int64_t kLeastStreamed = 1024;

template <class T>
void copy_run(const T* from, T* to, int64_t n, bool stream) {
  if constexpr (std::is_trivially_copyable_v<T>) {
    if (stream && n * static_cast<int64_t>(sizeof(T)) >= kLeastStreamed) {
      isa_table<StreamLoops>().copy(from, to, static_cast<size_t>(n) * sizeof(T));
      return;
    }
    // A call of memcpy costs more than a few moves.
    if (n * static_cast<int64_t>(sizeof(T)) >= 64) {
      std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
      return;
    }
  }
  for (int64_t i = 0; i < n; ++i) to[i] = from[i];
}

template <class T>
void copy_strided(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t n,
                  bool stream) {
  if (from_stride == 1 && to_stride == 1) return copy_run(from, to, n, stream);
  if (from_stride == 0 && to_stride == 1) {
    std::fill_n(to, n, *from);
    return;
  }
  if (to_stride == 1) {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * from_stride];
    return;
  }
  for (int64_t i = 0; i < n; ++i) to[i * to_stride] = from[i * from_stride];
}

template <class T>
constexpr bool kHasBlocks = std::is_integral_v<T>;

template <class T>
void transpose_block(const TransposeBlock& block, [[maybe_unused]] bool around_cache) {
  if constexpr (kHasBlocks<T>) {
    constexpr int kSizes = std::bit_width(sizeof(T)) - 1;
    isa_table<TransposeBlocks>().run[kSizes](block, around_cache);
  } else {
    const T* from = static_cast<const T*>(block.from);
    T* to = static_cast<T*>(block.to);
    for (int64_t j = 0; j < block.columns; ++j) {
      for (int64_t i = 0; i < block.rows; ++i) {
        to[j * block.to_stride + i] = from[i * block.from_stride + j];
      }
    }
  }
}

// n elements cut into blocks, of which the last takes what is left.
struct Blocks {
  int64_t n, count;

  explicit Blocks(int64_t size) : n(size), count(std::max<int64_t>(1, size / kTransposeBlock)) {}
  int64_t begin(int64_t i) const { return i * kTransposeBlock; }
  int64_t size(int64_t i) const { return (i + 1 == count ? n : begin(i + 1)) - begin(i); }
};

// What cannot be launched ends the step.
void fail_step(const KernelContext& ctx, const Status& status) {
  if (!status.ok()) ctx.step().fail(annotate_error(status, ctx.node(), 0));
}

// A transposed result from here on goes to memory around the caches.
constexpr int64_t kAroundCacheBytes = 8 << 20;

}  // namespace

void StridedCopy::add_dim(int64_t size, int64_t from_stride, int64_t to_stride) {
  if (size == 1) return;
  if (size == 0) empty_ = true;
  if (rank_ > 0) {
    Dim& outer = dims_[rank_ - 1];
    // Strides of a tensor with a large dimension may overflow when multiplied: then they differ.
    int64_t from, to;
    if (!__builtin_mul_overflow(size, from_stride, &from) && outer.from == from &&
        !__builtin_mul_overflow(size, to_stride, &to) && outer.to == to) {
      outer = {outer.size * size, from_stride, to_stride};
      return;
    }
  }
  dims_[rank_++] = {size, from_stride, to_stride};
}

void StridedCopy::add_dims(const Shape& shape) { add_dim(shape.num_elements(), 1, 1); }

int64_t StridedCopy::outer_count(int rank) const {
  int64_t count = 1;
  for (int i = 0; i < rank; ++i) count *= dims_[i].size;
  return count;
}

template <class T>
void StridedCopy::run_typed(const KernelContext& ctx, DType dtype, const T* from, T* to,
                            bool stream) const {
  if (rank_ == 0) {
    *to = *from;
    return;
  }
  const Dim inner = dims_[rank_ - 1];
  const double cost = copy_cost(dtype);
  if (rank_ == 1) {
    ctx.parallel_for(inner.size, cost, [&](int64_t begin, int64_t end) {
      copy_strided(from + begin * inner.from, inner.from, to + begin * inner.to, inner.to,
                   end - begin, stream);
      if (stream) isa_table<StreamLoops>().finish();
    });
    return;
  }
  if (inner.from != 1 && inner.to == 1) {
    for (int k = 0; k < rank_ - 1; ++k) {
      if (dims_[k].from == 1) return run_tiled(ctx, dtype, from, to, k);
    }
  }
  // Units are runs of the innermost dimension, numbered through all others. The second innermost is
  // walked without going through the counters.
  const Dim rows = dims_[rank_ - 2];
  const double run_cost = cost * static_cast<double>(inner.size) + 1;
  ctx.parallel_for(outer_count(rank_ - 1), run_cost, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      int64_t rest = begin / rows.size;
      const int64_t first = begin - rest * rows.size;
      const int64_t n = std::min(rows.size - first, end - begin);
      const T* f = from + first * rows.from;
      T* t = to + first * rows.to;
      for (int i = rank_ - 3; i >= 0; --i) {
        const int64_t next = rest / dims_[i].size;
        const int64_t index = rest - next * dims_[i].size;
        f += index * dims_[i].from;
        t += index * dims_[i].to;
        rest = next;
      }
      for (int64_t i = 0; i < n; ++i) {
        copy_strided(f + i * rows.from, inner.from, t + i * rows.to, inner.to, inner.size, stream);
      }
      begin += n;
    }
    if (stream) isa_table<StreamLoops>().finish();
  });
}

// `across` is the dimension along which the source is contiguous; the target is along the
// innermost.
template <class T>
void StridedCopy::run_tiled(const KernelContext& ctx, DType dtype, const T* from, T* to,
                            int across) const {
  const Dim inner = dims_[rank_ - 1];
  const Dim column = dims_[across];
  const Blocks bands(inner.size), strips(column.size);
  int64_t count = bands.count * strips.count;
  for (int i = 0; i < rank_ - 1; ++i) {
    if (i != across) count *= dims_[i].size;
  }
  const bool around_cache =
      outer_count(rank_) * static_cast<int64_t>(sizeof(T)) >= kAroundCacheBytes;
  const double cost = 2 * copy_cost(dtype) *
                      static_cast<double>(std::min(inner.size, kTransposeBlock)) *
                      static_cast<double>(std::min(column.size, kTransposeBlock));
  ctx.parallel_for(count, cost, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t band = unit % bands.count;
      int64_t rest = unit / bands.count;
      const int64_t strip = rest % strips.count;
      rest /= strips.count;
      const T* f = from + bands.begin(band) * inner.from + strips.begin(strip);
      T* t = to + bands.begin(band) + strips.begin(strip) * column.to;
      for (int i = rank_ - 2; i >= 0; --i) {
        if (i == across) continue;
        const int64_t next = rest / dims_[i].size;
        const int64_t index = rest - next * dims_[i].size;
        f += index * dims_[i].from;
        t += index * dims_[i].to;
        rest = next;
      }
      transpose_block<T>({f, inner.from, t, column.to, bands.size(band), strips.size(strip)},
                         around_cache);
    }
  });
}

void StridedCopy::run(const KernelContext& ctx, const Tensor& from, int64_t from_offset, Tensor& to,
                      int64_t to_offset) const {
  if (empty_) return;
  if (DeviceEngine* const device = device_engine(ctx)) {
    int64_t dims[2 * Shape::kMaxRank][3];
    for (int i = 0; i < rank_; ++i) {
      dims[i][0] = dims_[i].size, dims[i][1] = dims_[i].from, dims[i][2] = dims_[i].to;
    }
    const size_t size = dtype_size(to.dtype());
    const auto bytes = static_cast<int64_t>(size);
    return fail_step(
        ctx, device->strided_copy(ctx, size, {dims, static_cast<size_t>(rank_)},
                                  static_cast<const char*>(from.raw()) + from_offset * bytes,
                                  static_cast<char*>(to.mutable_raw()) + to_offset * bytes));
  }
  const bool stream = static_cast<int64_t>(to.bytes()) >= kStreamBytes;
  with_element(to.dtype(), [&]<class T>() {
    run_typed(ctx, to.dtype(), static_cast<const T*>(from.raw()) + from_offset,
              static_cast<T*>(to.mutable_raw()) + to_offset, stream);
  });
}

void zero_tensor(const KernelContext& ctx, Tensor& to) {
  const char zero = 0;
  if (DeviceEngine* const device = device_engine(ctx)) {
    return fail_step(ctx, device->fill(ctx, 1, &zero, /*host=*/true, to.mutable_raw(),
                                       static_cast<int64_t>(to.bytes())));
  }
  std::memset(to.mutable_raw(), zero, to.bytes());
}

void fill_tensor(const KernelContext& ctx, const Tensor& value, Tensor& to) {
  if (DeviceEngine* const device = device_engine(ctx)) {
    const bool host = value.buffer()->space() != MemorySpace::kDevice;
    return fail_step(ctx, device->fill(ctx, dtype_size(to.dtype()), value.raw(), host,
                                       to.mutable_raw(), to.num_elements()));
  }
  with_element(to.dtype(), [&]<class T>() {
    const T& element = *static_cast<const T*>(value.raw());
    T* out = static_cast<T*>(to.mutable_raw());
    ctx.parallel_for(to.num_elements(), copy_cost(to.dtype()), [&](int64_t begin, int64_t end) {
      std::fill(out + begin, out + end, element);
    });
  });
}

Result<Tensor*> forward_or_allocate(KernelContext& ctx, const Shape& shape) {
  if (shape == ctx.input(0).shape()) {
    ctx.set_output_value(0, ctx.take_input(0));
    return nullptr;
  }
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
  return shape.num_elements() == 0 ? nullptr : out;
}

}  // namespace millrace
