#pragma once

#include <cstdint>

#include "millrace/base/function.h"
#include "millrace/base/status.h"
#include "millrace/ops/linalg/gemm_kernels.h"

namespace millrace {

// Runs body(begin, end) over ranges that cover [0, n), perhaps on several threads, given the cost
// of one unit in nanoseconds: KernelContext::parallel_for, ThreadPool::parallel_for, or
// run_serially.
using ParallelFor =
    FunctionRef<void(int64_t n, double cost_ns_per_unit, FunctionRef<void(int64_t, int64_t)> body)>;
inline constexpr auto run_serially = [](int64_t n, double,
                                        FunctionRef<void(int64_t, int64_t)> body) {
  if (n > 0) body(0, n);
};

// One operand of a GEMM: `lines` (the rows of the left matrix, the columns of the right one) of k
// elements each, which need not exist in memory. A convolution packs its patches straight from the
// image. Thread-safe.
template <class T>
class GemmSource {
 public:
  virtual ~GemmSource() = default;
  // Writes elements [k, k + depth) of lines [line, line + count) as panels of `width` lines, one
  // after the other, as gemm_kernels.h describes; lines missing in the last panel are zeros.
  virtual void pack(int64_t line, int64_t count, int64_t k, int64_t depth, int width,
                    T* out) const = 0;
  // Where element p of line i is data[i * line_step + p * k_step], these; no data otherwise.
  struct Lines {
    const T* data = nullptr;
    int64_t line_step = 0;
    int64_t k_step = 0;
  };
  virtual Lines in_place() const { return {}; }
};

// Lines at regular distances in memory, of elements S that convert to T: element p of line i is
// data[i * line_step + p * k_step].
template <class T, class S = T>
class StridedSource final : public GemmSource<T> {
 public:
  StridedSource(const S* data, int64_t line_step, int64_t k_step)
      : data_(data), line_step_(line_step), k_step_(k_step) {}
  void pack(int64_t line, int64_t count, int64_t k, int64_t depth, int width,
            T* out) const override;
  typename GemmSource<T>::Lines in_place() const override;

 private:
  const S* data_;
  int64_t line_step_;
  int64_t k_step_;
};

// C = A B, or C += A B: m rows, n columns, sums of k products. C lies apart from A and B.
template <class T>
struct GemmProblem {
  int64_t m, n, k;
  const GemmSource<T>& a;
  const GemmSource<T>& b;
  T* c;
  int64_t ldc;  // from one row of C to the next
  bool accumulate = false;
  // Where set: row i of C begins at c + offsets[i - row] instead of c + i * ldc, after
  // row_offsets(context, row, count, offsets) with count <= 512.
  void (*row_offsets)(const void* context, int64_t row, int64_t count, int64_t* offsets) = nullptr;
  const void* row_context = nullptr;
};

// Solves the problem with packed panels and the tile kernels of best_isa(). Each element of C is
// summed in an order that depends on m, n, k and the instruction set alone, never on threads. Where
// k is much larger than C, as for the gradient of a filter, each of up to 16 parts of k is summed
// on its own by one thread, and the sums are added in order. With k = 0 C is zeros (or stays). T:
// float, double, uint32_t, uint64_t. RESOURCE_EXHAUSTED when there is no memory for panels.
template <class T>
Status gemm(const GemmProblem<T>& problem, ParallelFor parallel_for,
            const GemmKernels<T>& kernels = isa_table<GemmKernels<T>>());

// A matrix in memory: element (i, j) is data[i * row_step + j * column_step], conjugated on demand.
template <class S>
struct MatrixView {
  const S* data;
  int64_t row_step;
  int64_t column_step;
  bool conjugate = false;

  static MatrixView of(const S* data, int64_t columns) { return {data, columns, 1, false}; }
  MatrixView transposed() const { return {data, column_step, row_step, conjugate}; }
  MatrixView adjoint() const { return {data, column_step, row_step, !conjugate}; }
};

// c[m,n] (row-major) = a[m,k] b[k,n]. S: float, double, Half and BFloat16 (summed in float), 32-
// and 64-bit integers (wrapping), Complex64 and Complex128. Products too small to be worth packing
// are direct loops. Where the processor multiplies pairs of BFloat16 (PairKernels), subnormal ones
// are zeros to it.
template <class S>
Status matmul(int64_t m, int64_t n, int64_t k, MatrixView<S> a, MatrixView<S> b, S* c,
              ParallelFor parallel_for);

// The same by the definition: for tests.
template <class S>
void matmul_reference(int64_t m, int64_t n, int64_t k, MatrixView<S> a, MatrixView<S> b, S* c);

}  // namespace millrace
