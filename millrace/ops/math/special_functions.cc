#include "millrace/ops/math/special_functions.h"

#include <cmath>
#include <limits>

namespace millrace {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kPi = 3.14159265358979323846;
constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr int kMostTerms = 10000;

// B(2k) / (2k)!, k = 1, 2, ...: Euler and Maclaurin's summation.
constexpr double kBernoulli[] = {1.0 / 12,
                                 -1.0 / 720,
                                 1.0 / 30240,
                                 -1.0 / 1209600,
                                 1.0 / 47900160,
                                 -5.284190138687493e-10,
                                 1.3382536530684679e-11,
                                 -3.3896802963225828e-13,
                                 8.586062056277845e-15,
                                 -2.174868698558062e-16};

// x^a e^-x / gamma(a).
double gamma_density(double a, double x) { return std::exp(a * std::log(x) - x - log_gamma(a)); }

// The lower part as a series, for x < a + 1.
double lower_series(double a, double x) {
  double term = 1 / a, sum = term;
  for (int k = 1; k < kMostTerms; ++k) {
    term *= x / (a + k);
    sum += term;
    if (term < sum * kEpsilon) break;
  }
  return sum * gamma_density(a, x);
}

// The upper part as a continued fraction (Lentz's method), for x >= a + 1.
double upper_fraction(double a, double x) {
  constexpr double kTiny = 1e-300;
  double b = x + 1 - a, c = 1 / kTiny, d = 1 / b, result = d;
  for (int k = 1; k < kMostTerms; ++k) {
    const double factor = k * (a - k);
    b += 2;
    d = factor * d + b;
    c = b + factor / c;
    d = 1 / (std::abs(d) < kTiny ? kTiny : d);
    if (std::abs(c) < kTiny) c = kTiny;
    result *= c * d;
    if (std::abs(c * d - 1) < kEpsilon) break;
  }
  return result * gamma_density(a, x);
}

}  // namespace

double log_gamma(double x) {
  int sign = 0;
  return lgamma_r(x, &sign);
}

double digamma(double x) {
  if (x != x || x == -kInfinity) return kNan;
  if (x == kInfinity) return x;
  if (x <= 0) {
    if (x == std::floor(x)) return kNan;  // a pole
    return digamma(1 - x) - kPi / std::tan(kPi * x);
  }
  double result = 0;
  for (; x < 10; ++x) result -= 1 / x;
  const double y = 1 / (x * x);
  const double tail =
      y * (1.0 / 12 - y * (1.0 / 120 -
                           y * (1.0 / 252 -
                                y * (1.0 / 240 - y * (1.0 / 132 - y * (691.0 / 32760 - y / 12))))));
  return result + std::log(x) - 0.5 / x - tail;
}

double hurwitz_zeta(double x, double q) {
  if (x != x || q != q || x < 1) return kNan;
  if (x == 1) return kInfinity;
  if (q <= 0) {
    if (q == std::floor(q)) return kInfinity;
    if (x != std::floor(x)) return kNan;  // a negative number to a fraction
    if (q < -1e6) return kNan;
  }
  double sum = 0;
  for (int k = 0; k < 10 || q <= 9; ++k, ++q) sum += std::pow(q, -x);
  // The rest as an integral and corrections from its end.
  const double end = std::pow(q, -x);
  sum += end * q / (x - 1) + end / 2;
  double factor = x, power = end / q;
  for (int k = 0; k < 10; ++k) {
    const double term = kBernoulli[k] * factor * power;
    sum += term;
    if (std::abs(term) <= std::abs(sum) * kEpsilon) break;
    factor *= (x + 2 * k + 1) * (x + 2 * k + 2);
    power /= q * q;
  }
  return sum;
}

double polygamma(double n, double x) {
  if (n == 0) return digamma(x);
  if (!(n > 0) || n != std::floor(n)) return kNan;
  const double sign = std::fmod(n, 2) == 0 ? -1 : 1;
  return sign * std::exp(log_gamma(n + 1)) * hurwitz_zeta(n + 1, x);
}

double lower_gamma(double a, double x) {
  if (!(a > 0) || !(x >= 0)) return kNan;
  if (x == 0) return 0;
  if (x == kInfinity) return a == kInfinity ? kNan : 1;
  return x < a + 1 ? lower_series(a, x) : 1 - upper_fraction(a, x);
}

double upper_gamma(double a, double x) {
  if (!(a > 0) || !(x >= 0)) return kNan;
  if (x == 0) return 1;
  if (x == kInfinity) return a == kInfinity ? kNan : 0;
  return x < a + 1 ? 1 - lower_series(a, x) : upper_fraction(a, x);
}

}  // namespace millrace
