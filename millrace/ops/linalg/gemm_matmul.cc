#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "millrace/base/bfloat16_products.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/linalg/gemm.h"
#include "millrace/ops/linalg/scratch.h"
#include "millrace/ops/rounding.h"
#include "millrace/tensor/complex.h"
#include "millrace/tensor/half.h"

namespace millrace {
namespace {

// Products of at most this many multiplications are not worth packing.
constexpr int64_t kSmall = 8 * 8 * 8;

template <class S>
S element(const MatrixView<S>& view, int64_t i, int64_t j) {
  const S value = view.data[i * view.row_step + j * view.column_step];
  if constexpr (is_complex_v<S>) return view.conjugate ? std::conj(value) : value;
  return value;
}

template <class S>
void matmul_direct(int64_t m, int64_t n, int64_t k, MatrixView<S> a, MatrixView<S> b, S* c) {
  using Sum = SumType<S>;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      Sum sum{};
      for (int64_t p = 0; p < k; ++p) {
        sum += static_cast<Sum>(element(a, i, p)) * static_cast<Sum>(element(b, p, j));
      }
      c[i * n + j] = static_cast<S>(sum);
    }
  }
}

// Lines of bfloat16 in memory, as pairs of what follows each other in k (PairKernels); after the
// last of `depth` elements comes a zero where that makes no pair.
class PairSource final : public GemmSource<float> {
 public:
  PairSource(const BFloat16* data, int64_t line_step, int64_t k_step, int64_t depth)
      : data_(data), line_step_(line_step), k_step_(k_step), depth_(depth) {}

  void pack(int64_t line, int64_t count, int64_t k, int64_t depth, int width,
            float* out) const override {
    if (is_pairs()) {
      const StridedSource<float> whole(reinterpret_cast<const float*>(data_), line_step_ / 2, 1);
      whole.pack(line, count, k, depth, width, out);
      return;
    }
    for (; count > 0; count -= width, line += width, out += width * depth) {
      const auto here = static_cast<int>(std::min<int64_t>(count, width));
      if (k_step_ == 1) {
        pack_rows(line, here, k, depth, width, out);
      } else {
        pack_columns(line, here, k, depth, width, out);
      }
    }
  }

  Lines in_place() const override {
    if (!is_pairs()) return {};
    return {reinterpret_cast<const float*>(data_), line_step_ / 2, 1};
  }

  // Whether all pairs lie there, each in the place of a float.
  bool is_pairs() const {
    return k_step_ == 1 && depth_ % 2 == 0 && line_step_ % 2 == 0 && line_step_ >= 4 &&
           reinterpret_cast<uintptr_t>(data_) % alignof(float) == 0;
  }

 private:
  void pack_rows(int64_t line, int here, int64_t k, int64_t depth, int width, float* out) const {
    constexpr int64_t kChunk = 64;
    float pairs[kMaxPanel * kChunk];
    const float* rows[kMaxPanel];
    for (int64_t p = 0; p < depth; p += kChunk) {
      const int64_t length = std::min(kChunk, depth - p), element = 2 * (k + p);
      const int64_t there = std::min(2 * length, depth_ - element);
      for (int i = 0; i < here; ++i) {
        float* const row = pairs + i * kChunk;
        row[length - 1] = 0;
        std::memcpy(row, data_ + (line + i) * line_step_ + element,
                    static_cast<size_t>(there) * sizeof(BFloat16));
        rows[i] = row;
      }
      isa_table<GemmKernels<float>>().interleave(rows, here, width, length, out + p * width);
    }
  }

  void pack_columns(int64_t line, int here, int64_t k, int64_t depth, int width, float* out) const {
    for (int64_t p = 0; p < depth; ++p, out += width) {
      const int64_t element = 2 * (k + p);
      const BFloat16* const first = data_ + line * line_step_ + element * k_step_;
      const BFloat16* const second = element + 1 < depth_ ? first + k_step_ : nullptr;
      if (line_step_ == 1 && second != nullptr) {
        for (int i = 0; i < here; ++i) out[i] = pair(first[i], second[i]);
      } else {
        for (int i = 0; i < here; ++i) {
          const int64_t at = i * line_step_;
          out[i] = pair(first[at], second != nullptr ? second[at] : BFloat16());
        }
      }
      std::fill(out + here, out + width, 0.0f);
    }
  }

  static float pair(BFloat16 first, BFloat16 second) {
    const uint32_t low = first.bits, high = second.bits;
    return std::bit_cast<float>(low | high << 16);
  }

  const BFloat16* data_;
  int64_t line_step_, k_step_, depth_;
};

// Null where the processor has no instruction for them.
const GemmKernels<float>* pair_kernels() {
  static const PairKernels& found = isa_table<PairKernels>();
  static const bool use = found.present && machine_multiplies_bfloat16();
  return use ? &found.kernels : nullptr;
}

template <class T, class S>
Status multiply_into(int64_t m, int64_t n, int64_t k, const MatrixView<S>& a,
                     const MatrixView<S>& b, T* c, ParallelFor parallel_for) {
  if constexpr (std::is_same_v<S, BFloat16>) {
    const GemmKernels<float>* const pairs = pair_kernels();
    const PairSource left(a.data, a.row_step, a.column_step, k);
    const PairSource right(b.data, b.column_step, b.row_step, k);
    // To make pairs of what one row meets takes longer than to make floats of it.
    if (pairs != nullptr && (m > 1 || right.is_pairs())) {
      return gemm<T>({m, n, ceil_div(k, 2), left, right, c, n}, parallel_for, *pairs);
    }
  }
  const StridedSource<T, S> left(a.data, a.row_step, a.column_step);
  const StridedSource<T, S> right(b.data, b.column_step, b.row_step);
  return gemm<T>({m, n, k, left, right, c, n}, parallel_for);
}

// The real (part 0) or imaginary (part 1) numbers of a complex matrix.
template <class T>
MatrixView<T> part_of(const MatrixView<std::complex<T>>& view, int part) {
  return {reinterpret_cast<const T*>(view.data) + part, 2 * view.row_step, 2 * view.column_step};
}

// Four real products.
template <class T>
Status multiply_complex(int64_t m, int64_t n, int64_t k, const MatrixView<std::complex<T>>& a,
                        const MatrixView<std::complex<T>>& b, std::complex<T>* c,
                        ParallelFor parallel_for) {
  const int64_t size = m * n;
  Scratch<T> products(4 * size);
  MR_TRY(products.status());
  T* const p = products.data();
  for (int i = 0; i < 4; ++i) {
    MR_TRY((multiply_into<T, T>(m, n, k, part_of(a, i / 2), part_of(b, i % 2), p + i * size,
                                parallel_for)));
  }
  const T sign_a = a.conjugate ? T(-1) : T(1), sign_b = b.conjugate ? T(-1) : T(1);
  parallel_for(size, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      c[i] = {p[i] - sign_a * sign_b * p[3 * size + i],
              sign_b * p[size + i] + sign_a * p[2 * size + i]};
    }
  });
  return ok_status();
}

}  // namespace

template <class S>
Status matmul(int64_t m, int64_t n, int64_t k, MatrixView<S> a, MatrixView<S> b, S* c,
              ParallelFor parallel_for) {
  if (m == 0 || n == 0) return ok_status();
  if (k == 0) {
    std::fill_n(c, m * n, S{});
    return ok_status();
  }
  if (m <= kSmall && n <= kSmall && k <= kSmall && m * n * k <= kSmall) {
    matmul_direct(m, n, k, a, b, c);
    return ok_status();
  }
  using T = SumType<S>;
  if constexpr (is_complex_v<S>) {
    return multiply_complex(m, n, k, a, b, c, parallel_for);
  } else if constexpr (sizeof(T) == sizeof(S)) {
    // Signed and unsigned integers of one size may alias.
    const auto as_sum = [](const MatrixView<S>& view) {
      return MatrixView<T>{reinterpret_cast<const T*>(view.data), view.row_step, view.column_step};
    };
    return multiply_into<T, T>(m, n, k, as_sum(a), as_sum(b), reinterpret_cast<T*>(c),
                               parallel_for);
  } else {
    Scratch<T> sums(m * n);
    MR_TRY(sums.status());
    MR_TRY((multiply_into<T, S>(m, n, k, a, b, sums.data(), parallel_for)));
    parallel_for(m * n, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) c[i] = static_cast<S>(sums.data()[i]);
    });
    return ok_status();
  }
}

template <class S>
void matmul_reference(int64_t m, int64_t n, int64_t k, MatrixView<S> a, MatrixView<S> b, S* c) {
  matmul_direct(m, n, k, a, b, c);
}

#define MR_INSTANTIATE_MATMUL(S)                                                         \
  template Status matmul<S>(int64_t, int64_t, int64_t, MatrixView<S>, MatrixView<S>, S*, \
                            ParallelFor);                                                \
  template void matmul_reference<S>(int64_t, int64_t, int64_t, MatrixView<S>, MatrixView<S>, S*);
MR_INSTANTIATE_MATMUL(float)
MR_INSTANTIATE_MATMUL(double)
MR_INSTANTIATE_MATMUL(Half)
MR_INSTANTIATE_MATMUL(BFloat16)
MR_INSTANTIATE_MATMUL(int32_t)
MR_INSTANTIATE_MATMUL(int64_t)
MR_INSTANTIATE_MATMUL(uint32_t)
MR_INSTANTIATE_MATMUL(uint64_t)
MR_INSTANTIATE_MATMUL(Complex64)
MR_INSTANTIATE_MATMUL(Complex128)
#undef MR_INSTANTIATE_MATMUL

}  // namespace millrace
