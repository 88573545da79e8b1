#include "millrace/ops/linalg/schur.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace millrace {
namespace {

using C = Complex128;

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

double size(C x) { return std::abs(x.real()) + std::abs(x.imag()); }

// Makes everything below the subdiagonal zero by reflections from both sides.
void to_hessenberg(C* a, int64_t n, C* q) {
  std::vector<C> v(static_cast<size_t>(n));
  for (int64_t k = 0; k + 2 < n; ++k) {
    double norm = 0;
    for (int64_t i = k + 1; i < n; ++i) norm += std::norm(a[i * n + k]);
    double below = norm - std::norm(a[(k + 1) * n + k]);
    if (!(below > 0)) continue;
    norm = std::sqrt(norm);
    const C first = a[(k + 1) * n + k];
    const C phase = first == C{} ? C{1} : first / std::abs(first);
    for (int64_t i = k + 1; i < n; ++i) v[static_cast<size_t>(i)] = a[i * n + k];
    v[static_cast<size_t>(k + 1)] += phase * norm;
    double length = 0;
    for (int64_t i = k + 1; i < n; ++i) length += std::norm(v[static_cast<size_t>(i)]);
    // From the left: rows k + 1 and on.
    for (int64_t j = 0; j < n; ++j) {
      C sum = {};
      for (int64_t i = k + 1; i < n; ++i) {
        sum += std::conj(v[static_cast<size_t>(i)]) * a[i * n + j];
      }
      sum *= 2 / length;
      for (int64_t i = k + 1; i < n; ++i) a[i * n + j] -= v[static_cast<size_t>(i)] * sum;
    }
    // From the right, of Q too.
    for (C* m : {a, q}) {
      for (int64_t i = 0; m != nullptr && i < n; ++i) {
        C sum = {};
        for (int64_t j = k + 1; j < n; ++j) sum += m[i * n + j] * v[static_cast<size_t>(j)];
        sum *= 2 / length;
        for (int64_t j = k + 1; j < n; ++j) {
          m[i * n + j] -= sum * std::conj(v[static_cast<size_t>(j)]);
        }
      }
    }
    for (int64_t i = k + 2; i < n; ++i) a[i * n + k] = {};
  }
}

// The eigenvalue of the 2 x 2 matrix at [last - 1, last - 1] that is nearer to its lower right.
C wilkinson_shift(const C* a, int64_t n, int64_t last) {
  const C p = a[(last - 1) * n + last - 1], q = a[(last - 1) * n + last];
  const C r = a[last * n + last - 1], s = a[last * n + last];
  const C half = (p - s) * 0.5, root = std::sqrt(half * half + q * r);
  const C one = s + half + root, other = s + half - root;
  return size(one - s) < size(other - s) ? one : other;
}

}  // namespace

bool schur(Complex128* a, int64_t n, Complex128* q) {
  for (int64_t i = 0; i < n * n; ++i) {
    if (!std::isfinite(size(a[i]))) return false;
    if (q != nullptr) q[i] = i / n == i % n ? 1 : 0;
  }
  to_hessenberg(a, n, q);
  struct Rotation {
    double c;
    C s;
  };
  std::vector<Rotation> rotations(static_cast<size_t>(n));
  int steps = 0;
  for (int64_t last = n - 1; last > 0;) {
    // The block [first, last] that does not fall apart.
    int64_t first = last;
    while (first > 0) {
      const double near = size(a[(first - 1) * n + first - 1]) + size(a[first * n + first]);
      if (size(a[first * n + first - 1]) <= kEpsilon * near ||
          size(a[first * n + first - 1]) < std::numeric_limits<double>::min()) {
        a[first * n + first - 1] = {};
        break;
      }
      --first;
    }
    if (first == last) {
      --last;
      steps = 0;
      continue;
    }
    if (++steps > 60) return false;
    // Now and then another shift, for matrices that the usual one leaves as they are.
    const C shift = steps % 10 == 0 ? a[last * n + last] + size(a[last * n + last - 1])
                                    : wilkinson_shift(a, n, last);
    for (int64_t k = 0; k <= last; ++k) a[k * n + k] -= shift;
    for (int64_t k = first; k < last; ++k) {
      const C x = a[k * n + k], y = a[(k + 1) * n + k];
      const double length = std::hypot(std::abs(x), std::abs(y));
      Rotation r = {1, {}};
      if (length > 0 && x == C{}) {
        r = {0, std::conj(y) / length};
      } else if (length > 0) {
        r = {std::abs(x) / length, x / std::abs(x) * std::conj(y) / length};
      }
      rotations[static_cast<size_t>(k)] = r;
      for (int64_t j = k; j < n; ++j) {
        const C up = a[k * n + j], down = a[(k + 1) * n + j];
        a[k * n + j] = r.c * up + r.s * down;
        a[(k + 1) * n + j] = r.c * down - std::conj(r.s) * up;
      }
    }
    for (int64_t k = first; k < last; ++k) {
      const Rotation r = rotations[static_cast<size_t>(k)];
      const auto turn = [&](C& left, C& right) {
        const C old = left;
        left = r.c * old + std::conj(r.s) * right;
        right = r.c * right - r.s * old;
      };
      for (int64_t i = 0; i <= std::min(k + 1, last); ++i) turn(a[i * n + k], a[i * n + k + 1]);
      for (int64_t i = 0; q != nullptr && i < n; ++i) turn(q[i * n + k], q[i * n + k + 1]);
    }
    for (int64_t k = 0; k <= last; ++k) a[k * n + k] += shift;
  }
  for (int64_t i = 1; i < n; ++i) std::fill_n(a + i * n, i, C{});
  return true;
}

void triangular_sqrt(Complex128* t, int64_t n) {
  for (int64_t j = 0; j < n; ++j) {
    t[j * n + j] = std::sqrt(t[j * n + j]);
    for (int64_t i = j - 1; i >= 0; --i) {
      C sum = t[i * n + j];
      for (int64_t k = i + 1; k < j; ++k) sum -= t[i * n + k] * t[k * n + j];
      const C both = t[i * n + i] + t[j * n + j];
      // Two zeros: the root, where there is one, has zero here too.
      t[i * n + j] = both == C{} ? C{} : sum / both;
    }
  }
}

void triangular_log(Complex128* t, int64_t n, Complex128* scratch) {
  // Roots until the matrix is near to the identity, where the logarithm is an integral of
  // (T - I) (I + x (T - I))^-1 over [0, 1], by Gauss and Legendre.
  constexpr int kMostRoots = 100;
  int roots = 0;
  const auto distance = [&] {
    double most = 0;
    for (int64_t i = 0; i < n; ++i) {
      double row = 0;
      for (int64_t j = i; j < n; ++j) row += std::abs(t[i * n + j] - C(i == j ? 1 : 0));
      most = std::max(most, row);
    }
    return most;
  };
  while (distance() > 0.25 && roots < kMostRoots) {
    triangular_sqrt(t, n);
    ++roots;
  }
  for (int64_t i = 0; i < n; ++i) t[i * n + i] -= 1.0;
  constexpr double kNodes[] = {0.1834346424956498, 0.5255324099163290, 0.7966664774136267,
                               0.9602898564975363};
  constexpr double kWeights[] = {0.3626837833783620, 0.3137066458778873, 0.2223810344533745,
                                 0.1012285362903763};
  C* const result = scratch;
  C* const part = scratch + n * n;
  std::fill_n(result, n * n, C{});
  for (int node = 0; node < 8; ++node) {
    const double at = (node < 4 ? 1 + kNodes[node] : 1 - kNodes[node - 4]) / 2;
    const double weight = kWeights[node % 4] / 2;
    // X (I + at X)^-1, which is (I + at X)^-1 X: row by row from the last.
    std::copy_n(t, n * n, part);
    for (int64_t i = n - 1; i >= 0; --i) {
      for (int64_t k = i + 1; k < n; ++k) {
        const C factor = at * t[i * n + k];
        for (int64_t j = k; j < n; ++j) part[i * n + j] -= factor * part[k * n + j];
      }
      const C pivot = 1.0 + at * t[i * n + i];
      for (int64_t j = i; j < n; ++j) part[i * n + j] /= pivot;
    }
    for (int64_t k = 0; k < n * n; ++k) result[k] += weight * part[k];
  }
  for (int64_t k = 0; k < n * n; ++k) t[k] = std::ldexp(1.0, roots) * result[k];
}

void eigenvectors(const Complex128* t, int64_t n, Complex128* q, Complex128* scratch) {
  double largest = 0;
  for (int64_t i = 0; i < n * n; ++i) largest = std::max(largest, size(t[i]));
  const double least = std::max(largest * kEpsilon, std::numeric_limits<double>::min());
  // Those of T, in the columns of an upper triangle: back substitution.
  C* const x = scratch;
  std::fill_n(x, n * n, C{});
  for (int64_t j = 0; j < n; ++j) {
    x[j * n + j] = 1;
    for (int64_t i = j - 1; i >= 0; --i) {
      C sum = {};
      for (int64_t k = i + 1; k <= j; ++k) sum += t[i * n + k] * x[k * n + j];
      C pivot = t[j * n + j] - t[i * n + i];
      if (size(pivot) < least) pivot = least;
      x[i * n + j] = sum / pivot;
    }
  }
  std::vector<C> row(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    std::fill(row.begin(), row.end(), C{});
    for (int64_t k = 0; k < n; ++k) {
      for (int64_t j = k; j < n; ++j) row[static_cast<size_t>(j)] += q[i * n + k] * x[k * n + j];
    }
    std::copy(row.begin(), row.end(), q + i * n);
  }
  for (int64_t j = 0; j < n; ++j) {
    double norm = 0;
    for (int64_t i = 0; i < n; ++i) norm += std::norm(q[i * n + j]);
    norm = std::sqrt(norm);
    for (int64_t i = 0; norm > 0 && i < n; ++i) q[i * n + j] /= norm;
  }
}

}  // namespace millrace
