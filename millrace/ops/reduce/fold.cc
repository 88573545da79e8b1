#include "millrace/ops/reduce/fold.h"

#include "millrace/tensor/complex.h"

namespace millrace {
namespace {

template <class C>
C complex_product(C a, C b) {
  return C(a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real());
}

template <class C>
void product_of_rows(const C* x, int64_t rows, int64_t n, C* out) {
  for (int64_t r = 0; r < rows; ++r, x += n) {
    C acc = x[0];
    for (int64_t i = 1; i < n; ++i) acc = complex_product(acc, x[i]);
    out[r] = acc;
  }
}

template <class C>
void product_of_columns(C* acc, const C* x, int64_t rows, int64_t stride, int64_t cols) {
  for (; rows > 0; --rows, x += stride) {
    for (int64_t k = 0; k < cols; ++k) acc[k] = complex_product(acc[k], x[k]);
  }
}

template <class C>
constexpr FoldLoops<C> kComplexProduct = {product_of_rows<C>, product_of_columns<C>};

}  // namespace

template <class A>
const FoldLoops<A>& fold_loops(FoldOp op) {
  if constexpr (is_complex_v<A>) {
    return kComplexProduct<A>;
  } else {
    return isa_table<FoldTable<A>>().loops[static_cast<int>(op)];
  }
}
template const FoldLoops<float>& fold_loops(FoldOp);
template const FoldLoops<double>& fold_loops(FoldOp);
template const FoldLoops<int64_t>& fold_loops(FoldOp);
template const FoldLoops<Complex64>& fold_loops(FoldOp);
template const FoldLoops<Complex128>& fold_loops(FoldOp);

}  // namespace millrace
