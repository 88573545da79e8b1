#include "millrace/ops/linalg/decompositions.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace millrace {
namespace {

double conj_of(double x) { return x; }
Complex128 conj_of(Complex128 x) { return std::conj(x); }
double real_of(double x) { return x; }
double real_of(Complex128 x) { return x.real(); }
double norm_of(double x) { return x * x; }
double norm_of(Complex128 x) { return std::norm(x); }

// to[0..n) -= from[0..n) * factor.
template <class W>
void subtract(W* to, const W* from, W factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] -= from[i] * factor;
}

double largest_part(double x) { return std::abs(x); }
double largest_part(Complex128 x) { return std::max(std::abs(x.real()), std::abs(x.imag())); }
double scaled(double x, int exponent) { return std::ldexp(x, exponent); }
Complex128 scaled(Complex128 x, int exponent) {
  return {std::ldexp(x.real(), exponent), std::ldexp(x.imag(), exponent)};
}

// The exponent of 2 that n numbers, `stride` apart, are to be multiplied by before products of four
// of them are computed: 0 unless those would overflow or vanish.
template <class W>
int safe_exponent(const W* x, int64_t n, int64_t stride = 1) {
  double largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, largest_part(x[i * stride]));
  if (largest == 0 || (largest > 0x1p-100 && largest < 0x1p100) || !std::isfinite(largest)) {
    return 0;
  }
  return -std::ilogb(largest);
}

// The length of a vector of n numbers that lie `stride` apart.
template <class W>
double length_of(const W* x, int64_t n, int64_t stride) {
  const int exponent = safe_exponent(x, n, stride);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    sum += norm_of(exponent == 0 ? x[i * stride] : scaled(x[i * stride], exponent));
  }
  return std::ldexp(std::sqrt(sum), -exponent);
}

// A rotation that is not worth it any more.
constexpr double kEnough = 1e-15;
constexpr int kMostSweeps = 60;

}  // namespace

template <class W>
int lu_factor(W* a, int64_t n, int64_t* pivots) {
  int sign = 1;
  for (int64_t k = 0; k < n; ++k) {
    int64_t best = k;
    for (int64_t i = k + 1; i < n; ++i) {
      if (std::abs(a[i * n + k]) > std::abs(a[best * n + k])) best = i;
    }
    pivots[k] = best;
    if (best != k) {
      sign = -sign;
      std::swap_ranges(a + k * n, a + (k + 1) * n, a + best * n);
    }
    const W pivot = a[k * n + k];
    if (pivot == W{}) continue;
    for (int64_t i = k + 1; i < n; ++i) {
      const W factor = a[i * n + k] / pivot;
      a[i * n + k] = factor;
      subtract(a + i * n + k + 1, a + k * n + k + 1, factor, n - k - 1);
    }
  }
  return sign;
}

template <class W>
bool lu_singular(const W* lu, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (lu[i * n + i] == W{}) return true;
  }
  return false;
}

template <class W>
void lu_solve(const W* lu, const int64_t* pivots, int64_t n, bool adjoint, W* b, int64_t columns) {
  const auto swap_rows = [&](int64_t i) {
    if (pivots[i] != i) {
      std::swap_ranges(b + i * columns, b + (i + 1) * columns, b + pivots[i] * columns);
    }
  };
  const auto divide = [&](int64_t i, W by) {
    for (int64_t c = 0; c < columns; ++c) b[i * columns + c] /= by;
  };
  if (!adjoint) {
    for (int64_t i = 0; i < n; ++i) swap_rows(i);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t k = 0; k < i; ++k)
        subtract(b + i * columns, b + k * columns, lu[i * n + k], columns);
    }
    for (int64_t i = n - 1; i >= 0; --i) {
      for (int64_t k = i + 1; k < n; ++k) {
        subtract(b + i * columns, b + k * columns, lu[i * n + k], columns);
      }
      divide(i, lu[i * n + i]);
    }
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t k = 0; k < i; ++k) {
      subtract(b + i * columns, b + k * columns, conj_of(lu[k * n + i]), columns);
    }
    divide(i, conj_of(lu[i * n + i]));
  }
  for (int64_t i = n - 1; i >= 0; --i) {
    for (int64_t k = i + 1; k < n; ++k) {
      subtract(b + i * columns, b + k * columns, conj_of(lu[k * n + i]), columns);
    }
  }
  for (int64_t i = n - 1; i >= 0; --i) swap_rows(i);
}

template <class W>
bool triangular_solve(const W* t, int64_t n, bool lower, bool adjoint, W* b, int64_t columns) {
  const auto at = [&](int64_t i, int64_t k) {
    return adjoint ? conj_of(t[k * n + i]) : t[i * n + k];
  };
  const bool forward = lower != adjoint;
  for (int64_t step = 0; step < n; ++step) {
    const int64_t i = forward ? step : n - 1 - step;
    const int64_t from = forward ? 0 : i + 1, to = forward ? i : n;
    for (int64_t k = from; k < to; ++k) {
      subtract(b + i * columns, b + k * columns, at(i, k), columns);
    }
    const W pivot = at(i, i);
    if (pivot == W{}) return false;
    for (int64_t c = 0; c < columns; ++c) b[i * columns + c] /= pivot;
  }
  return true;
}

template <class W>
bool cholesky_factor(W* a, int64_t n) {
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j; i < n; ++i) {
      W sum = a[i * n + j];
      for (int64_t k = 0; k < j; ++k) sum -= a[i * n + k] * conj_of(a[j * n + k]);
      if (i == j) {
        if (!(real_of(sum) > 0)) return false;
        a[j * n + j] = std::sqrt(real_of(sum));
      } else {
        a[i * n + j] = sum / a[j * n + j];
      }
    }
    for (int64_t i = 0; i < j; ++i) a[i * n + j] = W{};
  }
  return true;
}

void symmetric_eigen(double* a, int64_t n, double* values, double* v) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = i + 1; j < n; ++j) a[i * n + j] = a[j * n + i];
  }
  const int exponent = safe_exponent(a, n * n);
  for (int64_t i = 0; exponent != 0 && i < n * n; ++i) a[i] = scaled(a[i], exponent);
  if (v != nullptr) {
    for (int64_t i = 0; i < n * n; ++i) v[i] = i / n == i % n ? 1 : 0;
  }
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    bool rotated = false;
    for (int64_t p = 0; p < n; ++p) {
      for (int64_t q = p + 1; q < n; ++q) {
        const double off = a[p * n + q], left = a[p * n + p], right = a[q * n + q];
        if (!(std::abs(off) > kEnough * std::sqrt(std::abs(left * right)) &&
              std::abs(off) > 1e-300)) {
          continue;
        }
        rotated = true;
        const double zeta = (right - left) / (2 * off);
        const double t = (zeta >= 0 ? 1 : -1) / (std::abs(zeta) + std::hypot(1, zeta));
        const double c = 1 / std::sqrt(1 + t * t), s = c * t;
        const auto rotate = [&](double& x, double& y) {
          const double old = x;
          x = c * old - s * y;
          y = s * old + c * y;
        };
        for (int64_t k = 0; k < n; ++k) rotate(a[k * n + p], a[k * n + q]);
        for (int64_t k = 0; k < n; ++k) rotate(a[p * n + k], a[q * n + k]);
        if (v == nullptr) continue;
        for (int64_t k = 0; k < n; ++k) rotate(v[k * n + p], v[k * n + q]);
      }
    }
    if (!rotated) break;
  }
  // Selection sort: n swaps of columns at most.
  for (int64_t i = 0; i < n; ++i) values[i] = std::ldexp(a[i * n + i], -exponent);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t least = std::min_element(values + i, values + n) - values;
    if (least == i) continue;
    std::swap(values[i], values[least]);
    if (v == nullptr) continue;
    for (int64_t k = 0; k < n; ++k) std::swap(v[k * n + i], v[k * n + least]);
  }
}

template <class W>
void jacobi_svd(W* a, int64_t m, int64_t n, double* values, W* v) {
  const int exponent = safe_exponent(a, m * n);
  for (int64_t i = 0; exponent != 0 && i < m * n; ++i) a[i] = scaled(a[i], exponent);
  for (int64_t i = 0; i < n * n; ++i) v[i] = i / n == i % n ? 1 : 0;
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    bool rotated = false;
    for (int64_t p = 0; p < n; ++p) {
      for (int64_t q = p + 1; q < n; ++q) {
        double alpha = 0, beta = 0;
        W gamma = {};
        for (int64_t i = 0; i < m; ++i) {
          alpha += norm_of(a[i * n + p]);
          beta += norm_of(a[i * n + q]);
          gamma += conj_of(a[i * n + p]) * a[i * n + q];
        }
        const double size = std::abs(gamma);
        if (!(size > kEnough * std::sqrt(alpha * beta) && size > 1e-300)) continue;
        rotated = true;
        const double zeta = (beta - alpha) / (2 * size);
        const double t = (zeta >= 0 ? 1 : -1) / (std::abs(zeta) + std::hypot(1, zeta));
        const double c = 1 / std::sqrt(1 + t * t), s = c * t;
        const W phase = gamma / size;
        const auto rotate = [&](W& x, W& y) {
          const W old = x;
          x = c * old - s * conj_of(phase) * y;
          y = s * phase * old + c * y;
        };
        for (int64_t i = 0; i < m; ++i) rotate(a[i * n + p], a[i * n + q]);
        for (int64_t i = 0; i < n; ++i) rotate(v[i * n + p], v[i * n + q]);
      }
    }
    if (!rotated) break;
  }
  for (int64_t j = 0; j < n; ++j) values[j] = length_of(a + j, m, n);
  for (int64_t j = 0; j < n; ++j) {
    const int64_t most = std::max_element(values + j, values + n) - values;
    if (most == j) continue;
    std::swap(values[j], values[most]);
    for (int64_t i = 0; i < m; ++i) std::swap(a[i * n + j], a[i * n + most]);
    for (int64_t i = 0; i < n; ++i) std::swap(v[i * n + j], v[i * n + most]);
  }
  // Columns that are nothing but rounding get directions of their own.
  int64_t rank = 0;
  while (rank < n && values[rank] > 1e-300 && values[rank] > values[0] * 1e-15) ++rank;
  for (int64_t j = 0; j < rank; ++j) {
    for (int64_t i = 0; i < m; ++i) a[i * n + j] /= values[j];
  }
  complete_basis(a, m, n, rank);
  for (int64_t j = 0; j < n; ++j) values[j] = std::ldexp(values[j], -exponent);
}

namespace {

// X -= factor v (v^H X) over the rows [from, m) and the columns [begin, n) of `x` [m, n]; v is 1
// and then what column `from` of `vectors` [m, stride] has below its diagonal.
template <class W>
void reflect(W* x, int64_t m, int64_t n, int64_t begin, const W* vectors, int64_t stride,
             int64_t from, W factor, std::vector<W>& sums) {
  if (factor == W{}) return;
  const auto v = [&](int64_t i) { return i == from ? W{1} : vectors[i * stride + from]; };
  std::fill(sums.begin(), sums.end(), W{});
  for (int64_t i = from; i < m; ++i) {
    const W left = conj_of(v(i));
    for (int64_t j = begin; j < n; ++j) sums[static_cast<size_t>(j)] += left * x[i * n + j];
  }
  for (int64_t i = from; i < m; ++i) {
    subtract(x + i * n + begin, sums.data() + begin, factor * v(i), n - begin);
  }
}

}  // namespace

template <class W>
void householder_qr(W* a, int64_t m, int64_t n, W* q, int64_t columns) {
  const int64_t steps = std::min(m, n);
  std::vector<W> factors(static_cast<size_t>(steps));
  std::vector<W> sums(static_cast<size_t>(std::max(n, columns)));
  for (int64_t k = 0; k < steps; ++k) {
    W* const pivot = a + k * n + k;
    const double below = length_of(pivot + n, m - k - 1, n);
    const double imaginary = std::abs(*pivot - W{real_of(*pivot)});
    if (below + imaginary <= std::numeric_limits<double>::min()) continue;
    const double length = std::hypot(std::abs(*pivot), below);
    const double beta = real_of(*pivot) >= 0 ? -length : length;
    for (int64_t i = k + 1; i < m; ++i) a[i * n + k] /= *pivot - beta;
    const W factor = conj_of((beta - *pivot) / beta);
    factors[static_cast<size_t>(k)] = factor;
    reflect(a, m, n, k + 1, a, n, k, factor, sums);
    *pivot = beta;
  }
  for (int64_t i = 0; i < m * columns; ++i) q[i] = i / columns == i % columns ? 1 : 0;
  for (int64_t k = std::min(steps, columns) - 1; k >= 0; --k) {
    reflect(q, m, columns, k, a, n, k, conj_of(factors[static_cast<size_t>(k)]), sums);
  }
  for (int64_t i = 1; i < m; ++i) std::fill_n(a + i * n, std::min(i, n), W{});
}

template <class W>
void complete_basis(W* q, int64_t m, int64_t columns, int64_t from) {
  int64_t unit = 0;
  for (int64_t j = from; j < columns; ++j) {
    // Some unit vector has a part of length 1 / sqrt(m) or more outside the columns before.
    for (;; unit = (unit + 1) % m) {
      for (int64_t i = 0; i < m; ++i) q[i * columns + j] = i == unit ? 1 : 0;
      // Twice, since the first leaves rounding errors.
      for (int pass = 0; pass < 2; ++pass) {
        for (int64_t k = 0; k < j; ++k) {
          W product = {};
          for (int64_t i = 0; i < m; ++i) {
            product += conj_of(q[i * columns + k]) * q[i * columns + j];
          }
          for (int64_t i = 0; i < m; ++i) q[i * columns + j] -= q[i * columns + k] * product;
        }
      }
      double sum = 0;
      for (int64_t i = 0; i < m; ++i) sum += norm_of(q[i * columns + j]);
      // NaN ends the search.
      if (sum * 4 * static_cast<double>(m) < 1) continue;
      const double length = std::sqrt(sum);
      for (int64_t i = 0; i < m; ++i) q[i * columns + j] /= length;
      break;
    }
  }
}

#define MR_INSTANTIATE(W)                                                       \
  template int lu_factor(W*, int64_t, int64_t*);                                \
  template bool lu_singular(const W*, int64_t);                                 \
  template void lu_solve(const W*, const int64_t*, int64_t, bool, W*, int64_t); \
  template bool triangular_solve(const W*, int64_t, bool, bool, W*, int64_t);   \
  template bool cholesky_factor(W*, int64_t);                                   \
  template void jacobi_svd(W*, int64_t, int64_t, double*, W*);                  \
  template void householder_qr(W*, int64_t, int64_t, W*, int64_t);              \
  template void complete_basis(W*, int64_t, int64_t, int64_t);
MR_INSTANTIATE(double)
MR_INSTANTIATE(Complex128)
#undef MR_INSTANTIATE

}  // namespace millrace
