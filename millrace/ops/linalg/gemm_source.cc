#include <algorithm>
#include <type_traits>

#include "millrace/ops/linalg/gemm.h"
#include "millrace/tensor/half.h"

namespace millrace {
namespace {

// Panels of `count` lines that lie side by side, from one element of a line to the next `step`.
template <class T>
void copy_panels(const T* data, int64_t step, int64_t count, int64_t depth, int width, T* out) {
  constexpr int64_t kLines = 128;
  const auto copy_lines = isa_table<GemmKernels<T>>().copy_lines;
  const int64_t whole = count / width * width;
  const int rest = static_cast<int>(count - whole);
  if (rest > 0) std::fill_n(out + whole * depth, width * depth, T{});
  for (int64_t first = 0; first < depth; first += kLines) {
    const int64_t length = std::min(kLines, depth - first);
    const T* lines[kLines];
    for (int64_t p = 0; p < length; ++p) lines[p] = data + (first + p) * step;
    T* to = out + first * width;
    for (int64_t i = 0; i < whole; i += width) {
      copy_lines(lines, i, width, width, length, to + i * depth);
    }
    if (rest > 0) copy_lines(lines, whole, rest, width, length, to + whole * depth);
  }
}

}  // namespace

template <class T, class S>
void StridedSource<T, S>::pack(int64_t line, int64_t count, int64_t k, int64_t depth, int width,
                               T* out) const {
  const S* data = data_ + line * line_step_ + k * k_step_;
  if constexpr (std::is_same_v<S, T>) {
    if (line_step_ == 1) {
      copy_panels(data, k_step_, count, depth, width, out);
      return;
    }
  }
  for (; count > 0; count -= width, data += width * line_step_, out += width * depth) {
    const int here = static_cast<int>(std::min<int64_t>(count, width));
    if (line_step_ == 1 || k_step_ != 1) {
      for (int64_t p = 0; p < depth; ++p) {
        const S* from = data + p * k_step_;
        T* to = out + p * width;
        for (int i = 0; i < here; ++i) to[i] = static_cast<T>(from[i * line_step_]);
        for (int i = here; i < width; ++i) to[i] = T{};
      }
      continue;
    }
    const T* rows[kMaxPanel];
    if constexpr (std::is_same_v<S, T>) {
      for (int i = 0; i < here; ++i) rows[i] = data + i * line_step_;
      isa_table<GemmKernels<T>>().interleave(rows, here, width, depth, out);
    } else {
      constexpr int64_t kChunk = 64;
      T converted[kMaxPanel * kChunk];
      for (int64_t p = 0; p < depth; p += kChunk) {
        const int64_t length = std::min(kChunk, depth - p);
        for (int i = 0; i < here; ++i) {
          const S* from = data + i * line_step_ + p;
          T* to = converted + i * kChunk;
          for (int64_t q = 0; q < length; ++q) to[q] = static_cast<T>(from[q]);
          rows[i] = to;
        }
        isa_table<GemmKernels<T>>().interleave(rows, here, width, length, out + p * width);
      }
    }
  }
}

template <class T, class S>
typename GemmSource<T>::Lines StridedSource<T, S>::in_place() const {
  if constexpr (std::is_same_v<S, T>) return {data_, line_step_, k_step_};
  return {};
}

template class StridedSource<float>;
template class StridedSource<double>;
template class StridedSource<uint32_t>;
template class StridedSource<uint64_t>;
template class StridedSource<float, Half>;
template class StridedSource<float, BFloat16>;

}  // namespace millrace
