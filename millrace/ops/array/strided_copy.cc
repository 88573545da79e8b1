#include "millrace/ops/array/strided_copy.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "millrace/ops/element.h"

namespace millrace {
namespace {

template <class T>
void copy_run(const T* from, T* to, int64_t n) {
  if constexpr (std::is_trivially_copyable_v<T>) {
    // A call of memcpy costs more than a few moves.
    if (n * static_cast<int64_t>(sizeof(T)) >= 64) {
      std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
      return;
    }
  }
  for (int64_t i = 0; i < n; ++i) to[i] = from[i];
}

template <class T>
void copy_strided(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t n) {
  if (from_stride == 1 && to_stride == 1) return copy_run(from, to, n);
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

using Vector4 = uint32_t __attribute__((vector_size(16)));

Vector4 load4(const uint32_t* p) {
  Vector4 v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

// to[j * to_stride + i] = from[i * from_stride + j] for i, j < 4.
void transpose_4x4(const uint32_t* from, int64_t from_stride, uint32_t* to, int64_t to_stride) {
  const Vector4 a = load4(from), b = load4(from + from_stride), c = load4(from + 2 * from_stride),
                d = load4(from + 3 * from_stride);
  const Vector4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Vector4 ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Vector4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Vector4 cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const Vector4 rows[] = {__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5),
                          __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
                          __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
                          __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
  for (int j = 0; j < 4; ++j) std::memcpy(to + j * to_stride, &rows[j], sizeof(rows[j]));
}

// to[j * to_stride + i] = from[i * from_stride + j] for i < n, j < m.
template <class T>
void transpose_tile(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t n,
                    int64_t m) {
  int64_t i = 0;
  if constexpr (std::is_same_v<T, uint32_t>) {
    for (; i + 4 <= n; i += 4) {
      int64_t j = 0;
      for (; j + 4 <= m; j += 4) {
        transpose_4x4(from + i * from_stride + j, from_stride, to + j * to_stride + i, to_stride);
      }
      for (; j < m; ++j) {
        for (int64_t k = i; k < i + 4; ++k) to[j * to_stride + k] = from[k * from_stride + j];
      }
    }
  }
  for (int64_t j = 0; i < n && j < m; ++j) {
    for (int64_t k = i; k < n; ++k) to[j * to_stride + k] = from[k * from_stride + j];
  }
}

constexpr int64_t kTile = 32;

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
void StridedCopy::run_typed(const KernelContext& ctx, DType dtype, const T* from, T* to) const {
  if (rank_ == 0) {
    *to = *from;
    return;
  }
  const Dim inner = dims_[rank_ - 1];
  const double cost = copy_cost(dtype);
  if (rank_ == 1) {
    ctx.parallel_for(inner.size, cost, [&](int64_t begin, int64_t end) {
      copy_strided(from + begin * inner.from, inner.from, to + begin * inner.to, inner.to,
                   end - begin);
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
        copy_strided(f + i * rows.from, inner.from, t + i * rows.to, inner.to, inner.size);
      }
      begin += n;
    }
  });
}

// `across` is the dimension along which the source is contiguous; the target is along the
// innermost.
template <class T>
void StridedCopy::run_tiled(const KernelContext& ctx, DType dtype, const T* from, T* to,
                            int across) const {
  const Dim inner = dims_[rank_ - 1];
  const Dim column = dims_[across];
  const int64_t strips = (column.size + kTile - 1) / kTile;
  int64_t count = strips;
  for (int i = 0; i < rank_ - 1; ++i) {
    if (i != across) count *= dims_[i].size;
  }
  const double cost = 2 * copy_cost(dtype) * static_cast<double>(inner.size) *
                      static_cast<double>(std::min(column.size, kTile));
  ctx.parallel_for(count, cost, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      int64_t rest = unit / strips;
      const int64_t column_begin = (unit - rest * strips) * kTile;
      const T* f = from + column_begin;
      T* t = to + column_begin * column.to;
      for (int i = rank_ - 2; i >= 0; --i) {
        if (i == across) continue;
        const int64_t next = rest / dims_[i].size;
        const int64_t index = rest - next * dims_[i].size;
        f += index * dims_[i].from;
        t += index * dims_[i].to;
        rest = next;
      }
      const int64_t m = std::min(kTile, column.size - column_begin);
      for (int64_t i = 0; i < inner.size; i += kTile) {
        transpose_tile(f + i * inner.from, inner.from, t + i, column.to,
                       std::min(kTile, inner.size - i), m);
      }
    }
  });
}

void StridedCopy::run(const KernelContext& ctx, const Tensor& from, int64_t from_offset, Tensor& to,
                      int64_t to_offset) const {
  if (empty_) return;
  with_element(to.dtype(), [&]<class T>() {
    run_typed(ctx, to.dtype(), static_cast<const T*>(from.raw()) + from_offset,
              static_cast<T*>(to.mutable_raw()) + to_offset);
  });
}

void fill_tensor(const KernelContext& ctx, const Tensor& value, Tensor& to) {
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
